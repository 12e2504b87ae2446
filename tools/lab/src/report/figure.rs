//! What figures are, by their keys: their unit, how they are written, which is the better one, and what they were taken from.

use crate::bench::{Row, median};
use crate::chart::{Unit, heading};

/// Ratios that a bench takes, within each boot where there are boots, and the figures that they are of.
const RECORDED: [(&str, &str); 3] = [
    ("off_ratio", "off_p99_ns"),
    ("call_ratio", "call_median_ns"),
    ("per_s_ratio", "per_s"),
];
/// What stands above plots and tables of a figure.
pub fn title(key: &str) -> String {
    let heading = heading(key);
    if Unit::of(key) == Unit::Time && key != "whole_ns" {
        return format!("Latency, {heading}");
    }
    let (first, rest) = heading.split_at(heading.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}

/// Whether more of it is better.
pub fn is_better_high(key: &str) -> bool {
    Unit::of(key) == Unit::Rate
}

/// A figure of a row, which may be the middle of a list.
pub fn value(row: &Row, key: &str) -> Option<f64> {
    row.number(key).or_else(|| median(row.numbers(key)))
}

/// What can be told apart of a figure: one for each boot, or for each round of a boot. Single iterations are not independent.
pub fn units(row: &Row, key: &str) -> Vec<f64> {
    match key {
        "median_ns" => row.numbers("boot_medians_ns").collect(),
        _ => row.numbers(key).collect(),
    }
}

/// The samples of a figure.
pub fn samples(row: &Row, key: &str) -> Vec<f64> {
    match key {
        "median_ns" => row.numbers("samples").collect(),
        _ => row.numbers(key).collect(),
    }
}

/// A figure's ratio to that of another row, for each boot or round; none if the two cannot be paired.
pub fn boot_ratios(row: &Row, other: &Row, key: &str) -> Vec<f64> {
    let (own, others) = (units(row, key), units(other, key));
    match own.len() == others.len() && others.iter().all(|other| *other > 0.0) {
        true => own
            .iter()
            .zip(&others)
            .map(|(own, other)| own / other)
            .collect(),
        false => Vec::new(),
    }
}

/// A figure's ratio to that of another row: the median of those of boots, or what the bench has taken so, or of what there is.
pub fn ratio(row: &Row, other: &Row, key: &str) -> Option<f64> {
    let of_boots = median(boot_ratios(row, other, key).into_iter());
    let quotient = || {
        let base = value(other, key).filter(|base| *base > 0.0)?;
        Some(value(row, key)? / base)
    };
    of_boots
        .or_else(|| recorded(row, other, key))
        .or_else(quotient)
}

/// The ratio that a row has, if it is to that other row, which then has 1.
fn recorded(row: &Row, other: &Row, key: &str) -> Option<f64> {
    let (sign, _) = RECORDED.iter().find(|(_, of)| *of == key)?;
    row.number(sign).filter(|_| other.number(sign) == Some(1.0))
}

/// The least and the most of these ratios, where there are several.
pub fn spread(row: &Row, other: &Row, key: &str) -> Option<(f64, f64)> {
    let ratios = boot_ratios(row, other, key);
    let least = ratios.iter().copied().reduce(f64::min)?;
    let most = ratios.iter().copied().reduce(f64::max)?;
    (ratios.len() > 1).then_some((least, most))
}
