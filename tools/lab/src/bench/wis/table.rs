//! The rows of both machines beside each other: medians, ratios, what failed.

use serde_json::json;

use crate::bench::columns::{Column, Format, table};
use crate::bench::row::{Row, median};
use crate::cli::MachineKind::{Linux, Qemu};

/// What tells rows of a machine apart.
const KEYS: [&str; 3] = ["test", "kind", "tasks"];

const COLUMNS: [Column; 9] = [
    Column::new("test", "test", Format::Words),
    Column::new("kind", "as", Format::Words),
    Column::new("tasks", "tasks", Format::Digits(0)),
    Column::new("per_s", "ours", Format::Digits(0)),
    Column::new("linux_per_s", "Linux", Format::Digits(0)),
    Column::new("ratio", "ours / Linux", Format::Digits(2)),
    Column::new("scaling", "to one task: ours", Format::Digits(2)),
    Column::new("linux_scaling", "Linux", Format::Digits(2)),
    Column::new("failed", "failed", Format::Words),
];

/// One row for each test, kind and number of tasks, in the order in which they were measured.
pub fn rows(measured: &[Row]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for first in measured {
        if rows.iter().any(|row| row.agrees(first, &KEYS)) {
            continue;
        }
        let of = |kind| {
            let same = measured.iter();
            same.filter(move |row| row.is_of(kind) && row.agrees(first, &KEYS))
        };
        let (ours, linux) = (per_s(of(Qemu)), per_s(of(Linux)));
        let mut row = Row::of(json!({
            "test": first.text("test"), "kind": first.text("kind"), "tasks": first.count("tasks"),
            "per_s": ours, "linux_per_s": linux, "ratio": ratio(ours, linux),
        }));
        for (key, of) in [("scaling", "per_s"), ("linux_scaling", "linux_per_s")] {
            // Those of one task are in the rows already.
            let is_one = |one: &&Row| one.agrees(first, &KEYS[..2]) && one.count("tasks") == 1;
            let one = rows.iter().find(is_one).and_then(|one| one.number(of));
            row.set(key, ratio(row.number(of), one));
        }
        let why = failed(failure(of(Qemu)), failure(of(Linux)));
        row.set("failed", why.unwrap_or_default());
        rows.push(row);
    }
    rows
}

/// The table.
pub fn of(rows: &[Row]) -> String {
    let has = |column: &Column| rows.iter().any(|row| is_shown(row, column.key));
    let columns: Vec<Column> = COLUMNS.iter().copied().filter(has).collect();
    table(&columns, rows)
}

/// Whether a row has something to show there.
fn is_shown(row: &Row, key: &str) -> bool {
    row.number(key).is_some() || !row.text(key).is_empty()
}

/// How many rows are behind Linux, and the middle of all for each number of tasks.
pub fn summary(rows: &[Row]) -> String {
    let mut counts: Vec<u64> = rows.iter().map(|row| row.count("tasks")).collect();
    counts.sort_unstable();
    counts.dedup();
    let line = |tasks: u64| {
        let of = |key| {
            rows.iter()
                .filter(move |row| row.count("tasks") == tasks)
                .filter_map(move |row| row.number(key))
        };
        let ratios: Vec<f64> = of("ratio").collect();
        let middle = median(ratios.iter().copied())?;
        let behind = ratios.iter().filter(|ratio| **ratio < 1.0).count();
        let scaling = match (median(of("scaling")), median(of("linux_scaling"))) {
            (Some(ours), Some(linux)) if tasks > 1 => {
                format!("; to one task {ours:.2}, on Linux {linux:.2}")
            }
            _ => String::new(),
        };
        Some(format!(
            "with {tasks}: ours / Linux {middle:.2} in the middle, below 1 in {behind} of {} rows{scaling}\n",
            ratios.len()
        ))
    };
    counts.into_iter().filter_map(line).collect()
}

/// The middle of all slices; nothing if any run failed, or nothing was done.
fn per_s<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Option<f64> {
    let is_whole = failure(rows.clone()).is_none();
    let slices = rows.flat_map(|row| row.numbers("slices"));
    median(slices).filter(|per_s| is_whole && *per_s > 0.0)
}

fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to.filter(|to| *to > 0.0)?)
}

/// Why the first run failed that did.
fn failure<'a>(mut rows: impl Iterator<Item = &'a Row>) -> Option<&'a str> {
    let is_idle = |row: &Row| row.numbers("slices").all(|per_s| per_s == 0.0);
    rows.find_map(|row| match row.text("failed") {
        "" if is_idle(row) => Some("no operation in any slice"),
        "" => None,
        why => Some(why),
    })
}

fn failed(ours: Option<&str>, linux: Option<&str>) -> Option<String> {
    match (ours, linux) {
        (Some(ours), Some(linux)) if ours == linux => Some(format!("{ours} on both")),
        (Some(ours), Some(linux)) => Some(format!("ours: {ours}; Linux: {linux}")),
        (Some(ours), None) => Some(format!("ours: {ours}")),
        (None, linux) => linux.map(|linux| format!("Linux: {linux}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(machine: &str, tasks: u32, slices: &[f64], failed: &str) -> Row {
        Row::of(json!({
            "test": "brk1", "kind": "threads", "tasks": tasks, "machine": machine, "slices": slices, "failed": failed,
        }))
    }

    #[test]
    fn ratios_and_scaling_are_of_medians_over_all_boots() {
        let rows = rows(&[
            row("qemu", 1, &[4.0, 5.0], ""),
            row("qemu", 2, &[9.0], ""),
            row("linux", 1, &[2.0], ""),
            row("linux", 2, &[5.0], ""),
            row("qemu", 1, &[9.0], ""),
        ]);
        let of = |key| rows.iter().map(|row| row.number(key)).collect::<Vec<_>>();
        assert_eq!(of("per_s"), [Some(5.0), Some(9.0)]);
        assert_eq!(of("ratio"), [Some(2.5), Some(1.8)]);
        assert_eq!(of("scaling"), [None, Some(1.8)]);
        assert_eq!(of("linux_scaling"), [None, Some(2.5)]);
        let text = summary(&rows);
        assert!(
            text.contains("with 2: ours / Linux 1.80") && text.contains("0 of 1 rows"),
            "{text}"
        );
    }

    #[test]
    fn a_failure_is_named_and_has_no_figures() {
        for (ours, linux, said) in [
            ("Bus error", "Bus error", "Bus error on both"),
            ("Bus error", "", "ours: Bus error"),
            ("", "it hung", "Linux: it hung"),
            ("a", "b", "ours: a; Linux: b"),
        ] {
            let rows = rows(&[row("qemu", 2, &[1.0], ours), row("linux", 2, &[1.0], linux)]);
            assert_eq!(rows[0].text("failed"), said);
            assert_eq!(rows[0].number("ratio"), None);
            assert!(of(&rows).contains(said));
        }
        let idle = rows(&[row("qemu", 1, &[0.0], "")]);
        assert_eq!(idle[0].text("failed"), "ours: no operation in any slice");
    }
}
