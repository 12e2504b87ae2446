//! What figures are, by their keys: their unit, how they are written, which is the better one, and what they were taken from.

use crate::bench::{Row, median, number, short, time};

/// Ratios that a bench takes, within each boot where there are boots, and the figures that they are of.
const RECORDED: [(&str, &str); 3] = [
    ("off_ratio", "off_p99_ns"),
    ("call_ratio", "call_median_ns"),
    ("per_s_ratio", "per_s"),
];
/// Parts of keys that are written otherwise.
const WORDS: [(&str, &str); 11] = [
    ("off", "preemption off"),
    ("whole", "time of all calls"),
    ("ipis", "IPIs"),
    ("ipi", "IPI"),
    ("cpus", "CPUs"),
    ("cpu", "CPU"),
    ("op", "operation"),
    ("vcpus", "virtual CPUs"),
    ("irq", "interrupt"),
    ("p50", "median"),
    ("lines", "cache lines"),
];

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Of another row's figure.
    Ratio,
    /// Of a hundred.
    Percent,
    /// So many a second.
    Rate,
    /// Just a number.
    Number,
}

impl Unit {
    /// Of a key.
    pub fn of(key: &str) -> Self {
        let has = |part: &str| key.split('_').any(|word| word == part);
        match key {
            _ if has("ratio") => Self::Ratio,
            _ if has("ns") => Self::Time,
            _ if has("percent") => Self::Percent,
            _ if key == "per_s" || key.ends_with("_per_s") => Self::Rate,
            _ => Self::Number,
        }
    }

    /// A figure with it.
    pub fn write(self, value: f64) -> String {
        match self {
            Self::Time => time(value),
            Self::Ratio if value.abs() >= 9.9995 => short(value),
            Self::Ratio if value > 0.0 && value < 0.0995 => {
                let digits = (1.0 - value.log10().floor()) as usize;
                format!("{value:.digits$}")
            }
            Self::Ratio => format!("{value:.3}"),
            Self::Percent => format!("{value:.1} %"),
            Self::Rate if value >= 1e6 => format!("{:.2} M/s", value / 1e6),
            Self::Rate if value >= 1e4 => format!("{:.1} k/s", value / 1e3),
            Self::Rate => format!("{}/s", short(value)),
            Self::Number if value.fract() == 0.0 => number(value),
            Self::Number => short(value),
        }
    }
}

/// What a figure is called.
pub fn heading(key: &str) -> String {
    if key == "per_s" {
        return "operations a second".into();
    }
    let word = |part| {
        let known = WORDS.iter().find(|(word, _)| *word == part);
        known.map_or(part, |(_, written)| *written)
    };
    let key = key.strip_suffix("_ns").unwrap_or(key).replace("_ns_", "_");
    let key = key.strip_suffix("_percent").unwrap_or(&key);
    let words: Vec<&str> = key.split('_').map(word).collect();
    match words.join(" ") {
        words if words.is_empty() => "ns".into(),
        words => words.replace("per s", "a second"),
    }
}

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
