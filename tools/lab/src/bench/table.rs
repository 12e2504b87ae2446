//! The tables that people read.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::Value;

use super::plan::Plan;
use super::rows::Row;
use crate::cli::Bench;
use crate::machine::host_cores;

const HEADINGS: [&str; 11] = [
    "threads",
    "policy",
    "median ns",
    "p99 ns",
    "/ before",
    "/ linux",
    "call ns",
    "call p99",
    "call / before",
    "IPIs/op",
    "stale",
];

/// What the engine counted: heading, and counter of the engine.
const MECHANISM: [(&str, &str); 5] = [
    ("acks before flush", "early_acks"),
    ("flushed here first", "flushes_overlapped"),
    ("nobody waited", "flushes_unwaited"),
    ("lines read", "shared_lines_read"),
    ("pages dropped", "pages_flushed"),
];

/// Above this, times of two threads on two cores are no longer those of the machine alone.
const NOISE_CORES: f64 = 0.1;

/// One table for each number of pages, the notes that they need, and the comparison with Linux.
pub fn render(bench: &Bench, plan: &Plan, rows: &[Row], others: Option<f64>) -> String {
    let mut pages: Vec<u32> = rows.iter().map(|row| row.pages).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    for &pages in &pages {
        let plural = if pages == 1 { "page" } else { "pages" };
        line(format!(
            "\nmadvise: {pages} {plural} a flush; ns an iteration on the initiator, and in its call"
        ));
        line(table(rows.iter().filter(|row| row.pages == pages)));
    }
    if let Some(counts) = mechanism(rows) {
        line("\nwhat the engine counted an iteration; counts hold on any host".into());
        line(counts);
    }
    for group in &plan.groups {
        line(format!(
            "{} threads: {} virtual CPUs on {} host cores, accel {}",
            group
                .threads
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(" and "),
            group.cpus,
            host_cores(),
            group.accel,
        ));
    }
    if rows.iter().any(|row| row.crowded) {
        line("* more busy vCPUs than host cores: shows the host's scheduler, not the flush; IPIs/op and stale still hold".into());
    }
    if rows.iter().any(|row| row.policy == "best") {
        line(against_linux(rows));
    }
    if let Some(cores) = others.filter(|&cores| cores > NOISE_CORES) {
        line(format!(
            "other work kept {cores:.1} host cores busy meanwhile: take figures again when the host is quiet"
        ));
    }
    if bench.quick {
        line("--quick: short boots, for a look; take figures without it".into());
    }
    text
}

fn table<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut rows: Vec<&Row> = rows.collect();
    rows.sort_by_key(|row| row.threads);
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(HEADINGS);
    for row in rows {
        let mark = if row.crowded { " *" } else { "" };
        table.add_row([
            format!("{}{mark}", row.threads),
            row.policy.clone(),
            format!("{:.0}", row.median_ns),
            format!("{:.0}", row.p99_ns),
            ratio(row.ratio),
            ratio(row.ratio_to_linux),
            format!("{:.0}", row.call_median_ns),
            format!("{:.0}", row.call_p99_ns),
            ratio(row.call_ratio),
            row.ipis_per_op
                .map_or_else(|| "-".into(), |ipis| format!("{ipis:.2}")),
            row.stale.to_string(),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// How each policy works, in counts: they show the overlap where an emulator's times hide it.
fn mechanism(rows: &[Row]) -> Option<String> {
    let mut rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.threads > 1 && row.counters.contains_key("shared_lines_read"))
        .collect();
    rows.sort_by_key(|row| (row.pages, row.threads));
    if rows.is_empty() {
        return None;
    }
    let mut table = Table::new();
    let headings = ["pages", "threads", "policy"].into_iter();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_header(headings.chain(MECHANISM.map(|(heading, _)| heading)));
    for row in rows {
        let axes = [
            row.pages.to_string(),
            row.threads.to_string(),
            row.policy.clone(),
        ];
        let counts = MECHANISM.map(|(_, name)| format!("{:.2}", count(row, name)));
        table.add_row(axes.into_iter().chain(counts));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 2 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    Some(table.to_string())
}

/// A counter of a row; programs leave out those that did not move.
fn count(row: &Row, name: &str) -> f64 {
    let counter = row.counters.get(name);
    counter.and_then(Value::as_f64).unwrap_or_default()
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}"))
}

/// One sentence with the figures that count, or why there are none.
fn against_linux(rows: &[Row]) -> String {
    let best = rows
        .iter()
        .filter(|row| row.policy == "best" && !row.crowded);
    let mut text = String::from("best / linux:");
    let mut count = 0;
    for row in best {
        if let Some(ratio) = row.ratio_to_linux {
            let plural = if row.threads == 1 {
                "thread"
            } else {
                "threads"
            };
            let page = if row.pages == 1 { "page" } else { "pages" };
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "{} {ratio:.3} ({} {plural}, {} {page})",
                if count > 0 { "," } else { "" },
                row.threads,
                row.pages
            );
            count += 1;
        }
    }
    if count > 0 {
        text
    } else {
        "no comparison with Linux: `./lab doctor --get-linux` fetches an image".into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Printed, Setting, Sighting, merge};
    use super::*;
    use crate::cli::MachineKind;

    fn printed(policy: &str, call_median_ns: f64) -> Printed {
        let text = format!(
            r#"{{"policy":"{policy}","threads":2,"pages":32,"median_ns":900,"p99_ns":990,"min_ns":1,
                "call_median_ns":{call_median_ns},"call_p99_ns":777,"iterations":3,"ipis_per_op":1,"stale":0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_call_has_columns_of_its_own() {
        let sightings =
            [("before", 400.0), ("best", 100.0)].map(|(policy, call_median_ns)| Sighting {
                machine: MachineKind::Qemu,
                boot: 0,
                row: printed(policy, call_median_ns),
            });
        let setting = Setting {
            cpus: 2,
            accel: "tcg".into(),
            is_crowded: false,
        };
        let text = table(merge(&sightings, &setting).iter());
        let cells = |line: &str| -> Vec<String> {
            let cells = line.split(['│', '┆']).map(|cell| cell.trim().to_owned());
            cells.filter(|cell| !cell.is_empty()).collect()
        };
        let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
        let find = |word: &str| lines.iter().find(|line| line.iter().any(|c| c == word));
        let (heading, best) = (find("policy").unwrap(), find("best").unwrap());
        let cell = |name: &str| &best[heading.iter().position(|cell| cell == name).unwrap()];
        assert_eq!(cell("call ns"), "100");
        assert_eq!(cell("call p99"), "777");
        assert_eq!(cell("call / before"), "0.250");
        assert_eq!(cell("/ before"), "1.000");
    }
}
