//! Which figures stand for rows, by the ratios that rows have.

use super::axes::same_shape;
use super::figure::value;
use crate::bench::Row;

/// What the plain ratio may be of; the first if figures do not tell.
const RATIO_OF: [&str; 3] = ["median_ns", "p99_ns", "per_s"];
/// Figures, the most important first, each behind a key that says that it stands for its row; the plain ratio stands for one of
/// [`RATIO_OF`], and the last three are for rows without any ratio.
const PRINCIPAL: [(&str, Option<&str>); 8] = [
    ("off_ratio", Some("off_p99_ns")),
    ("change_percent", Some("whole_ns")),
    ("ratio", None),
    ("call_ratio", Some("call_median_ns")),
    ("per_s_ratio", Some("per_s")),
    ("peer", Some("whole_ns")),
    ("peer", Some("median_ns")),
    ("peer", Some("median_cycles")),
];
/// Figures of which there is one plot each, if they are there: of several that mean the same, the first.
const COUNTS: [&[&str]; 2] = [
    &["ipis_per_op", "ipis_per_target", "ipis"],
    &["lines_per_op", "lines_per_target", "lines"],
];

/// What stands for rows, the most important first.
pub fn principal(rows: &[&Row]) -> Vec<&'static str> {
    let mut found: Vec<&str> = Vec::new();
    for (sign, key) in PRINCIPAL {
        let Some(key) = key.or_else(|| ratio_of(rows)) else {
            continue;
        };
        let is_there = |row: &&Row| row.0.contains_key(sign) && value(row, key).is_some();
        let is_last_resort = sign == "peer";
        let is_wanted = !found.contains(&key) && (found.is_empty() || !is_last_resort);
        if is_wanted && rows.iter().any(is_there) {
            found.push(key);
        }
    }
    found
}

/// What the plain ratio is of: where nothing was merged, the figure whose own ratio to the row with 1 it is.
fn ratio_of(rows: &[&Row]) -> Option<&'static str> {
    let is_there = |key: &&str| rows.iter().any(|row| value(row, key).is_some());
    let mut there = RATIO_OF.into_iter().filter(is_there);
    let exact = there
        .clone()
        .find(|key| rows.iter().all(|row| is_exact(row, rows, key)));
    exact.or_else(|| there.next())
}

/// Whether a row's ratio is that of a figure; so it is where there is none.
fn is_exact(row: &Row, rows: &[&Row], key: &str) -> bool {
    let Some(ratio) = row.number("ratio") else {
        return true;
    };
    let is_one = |other: &&&Row| other.number("ratio") == Some(1.0) && same_shape(row, other);
    let other = rows.iter().find(is_one);
    let quotient = other.and_then(|other| Some(value(row, key)? / value(other, key)?));
    quotient.is_some_and(|quotient| (quotient - ratio).abs() <= 1e-9 * ratio.abs())
}

/// Which counts there are to draw.
pub fn counts(rows: &[&Row]) -> Vec<&'static str> {
    let is_there = |key: &&&str| rows.iter().any(|row| value(row, key).is_some());
    let found = COUNTS.iter().map(|keys| keys.iter().find(is_there));
    found.flatten().copied().collect()
}

/// Figures of which rows may have samples.
pub fn sampled(rows: &[&Row]) -> Vec<&'static str> {
    let mut keys = principal(rows);
    // Samples are of it, whatever stands for the rows.
    if !keys.contains(&"median_ns") {
        keys.push("median_ns");
    }
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(rows: &[serde_json::Value]) -> Vec<&'static str> {
        let rows: Vec<Row> = rows.iter().cloned().map(Row::of).collect();
        principal(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn what_a_ratio_is_of_follows_from_figures() {
        let row = |ratio: f64, median: f64, p99: f64| json!({"policy": "a", "ratio": ratio, "median_ns": median, "p99_ns": p99});
        assert_eq!(
            of(&[row(1.0, 10.0, 40.0), row(0.5, 5.0, 39.0)]),
            ["median_ns"]
        );
        assert_eq!(of(&[row(1.0, 10.0, 40.0), row(0.5, 9.0, 20.0)]), ["p99_ns"]);
        // Merged from boots it is of neither exactly.
        assert_eq!(
            of(&[row(1.0, 10.0, 40.0), row(0.5, 5.1, 20.1)]),
            ["median_ns"]
        );
    }

    #[test]
    fn rows_without_a_ratio_have_what_peers_need() {
        assert_eq!(
            of(&[json!({"peer": "a", "median_ns": 1, "whole_ns": [2, 3]})]),
            ["whole_ns"]
        );
        assert_eq!(of(&[json!({"peer": "a", "median_ns": 1})]), ["median_ns"]);
        assert_eq!(
            of(&[json!({"policy": "a", "per_s": 1, "per_s_ratio": 1, "median_ns": 1})]),
            ["per_s"]
        );
        assert!(of(&[json!({"policy": "a"})]).is_empty());
    }
}
