//! The tables that people read.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::Value;

use super::plan::Plan;
use super::rows::{Call, Row, machine_name};
use super::workload::{Axes, counted};
use crate::cli::{Bench, MachineKind, Workload};
use crate::machine::host_cores;

/// A column: its heading, and what it shows of a row.
type Column = (&'static str, fn(&Row) -> String);

/// Columns before and after those of the workload.
const TIMES: [Column; 5] = [
    ("policy", |row| row.policy.clone()),
    ("median ns", |row| whole(row.median_ns)),
    ("p99 ns", |row| whole(row.p99_ns)),
    ("/ before", |row| ratio(row.ratio)),
    ("/ linux", |row| ratio(row.ratio_to_linux)),
];
const COUNTS: [Column; 2] = [
    ("IPIs/op", |row| {
        or_dash(row.ipis_per_op.map(|ipis| format!("{ipis:.2}")))
    }),
    ("stale", |row| row.stale.to_string()),
];
const CALL: [Column; 3] = [
    ("call ns", |row| call(row, |call| whole(call.median_ns))),
    ("call p99", |row| call(row, |call| whole(call.p99_ns))),
    ("call / before", |row| call(row, |call| ratio(call.ratio))),
];
const PAGE: [Column; 1] = [("ns a page", |row| {
    or_dash(row.page_ns.map(|ns| format!("{ns:.2}")))
})];

/// How flushes work: heading, and counter of the engine.
const FLUSHES: &[(&str, &str)] = &[
    ("acks before flush", "early_acks"),
    ("flushed here first", "flushes_overlapped"),
    ("nobody waited", "flushes_unwaited"),
    ("lines read", "shared_lines_read"),
    ("pages dropped", "pages_flushed"),
];
/// How switches work, likewise.
const SWITCHES: &[(&str, &str)] = &[
    ("tags kept", "tags_kept"),
    ("tags dropped", "tags_dropped"),
    ("tags taken", "tags_taken"),
    ("lazy skipped", "lazy_skipped"),
];

impl Workload {
    /// What the tables say above: so many pages, and what the time is of.
    fn title(self, pages: u32) -> String {
        let pages = counted(pages, "pages");
        match self {
            Self::Madvise => format!(
                "madvise: {pages} a flush; ns an iteration on the initiator, and in its call"
            ),
            Self::Pingpong => {
                format!("pingpong: {pages} read in a turn; ns a turn, all processes on one CPU")
            }
        }
    }

    fn columns(self) -> &'static [Column] {
        match self {
            Self::Madvise => &CALL,
            Self::Pingpong => &PAGE,
        }
    }

    /// The counters that show the workload's mechanism.
    fn mechanism(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Madvise => FLUSHES,
            Self::Pingpong => SWITCHES,
        }
    }
}

/// Above this, times of two threads on two cores are no longer those of the machine alone.
const NOISE_CORES: f64 = 0.1;

/// One table for each number of pages, the notes that they need, and the comparison with Linux.
pub fn render(bench: &Bench, plan: &Plan, rows: &[Row], others: Option<f64>) -> String {
    let axes = &plan.axes;
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    for &pages in &axes.pages {
        line(format!("\n{}", axes.workload.title(pages)));
        let rows = rows.iter().filter(|row| row.pages == pages);
        line(table(rows, axes.workload));
    }
    if let Some(counts) = mechanism(rows, axes.workload) {
        line("\nwhat the engine counted an iteration; counts hold on any host".into());
        line(counts);
    }
    if has_no_tags(rows, axes.workload) {
        line("no hardware tags here: each switch of spaces forgets everything under every policy; --machine sim has them".into());
    }
    for group in &plan.groups {
        let actors: Vec<String> = group.actors.iter().map(u32::to_string).collect();
        line(format!(
            "{} {}: {} virtual CPUs on {} host cores, accel {}",
            actors.join(" and "),
            axes.workload.actors(),
            group.cpus,
            host_cores(),
            group.accel,
        ));
    }
    if rows.iter().any(|row| row.crowded) {
        line("* more busy vCPUs than host cores: shows the host's scheduler, not the flush; IPIs/op and stale still hold".into());
    }
    if rows.iter().any(|row| row.policy == "best") {
        line(against_linux(rows, axes));
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

fn table<'a>(rows: impl Iterator<Item = &'a Row>, workload: Workload) -> String {
    let mut rows: Vec<&Row> = rows.collect();
    rows.sort_by_key(|row| row.actors.count());
    let columns: Vec<&Column> = TIMES
        .iter()
        .chain(workload.columns())
        .chain(&COUNTS)
        .collect();
    let headings = columns.iter().map(|(heading, _)| *heading);
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_header([workload.actors()].into_iter().chain(headings));
    for row in rows {
        let mark = if row.crowded { " *" } else { "" };
        let actors = format!("{}{mark}", row.actors.count());
        let cells = columns.iter().map(|(_, cell)| cell(row));
        table.add_row([actors].into_iter().chain(cells));
    }
    align(&mut table, 1);
    table.to_string()
}

/// Numbers to the right; only the column with the policies has words.
fn align(table: &mut Table, words: usize) {
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// How each policy works, in counts: they show what an emulator's times hide.
fn mechanism(rows: &[Row], workload: Workload) -> Option<String> {
    let mut rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.actors.count() > 1 && is_ours(row))
        .collect();
    rows.sort_by_key(|row| (row.pages, row.actors.count()));
    if rows.is_empty() {
        return None;
    }
    let mut table = Table::new();
    let headings = ["pages", workload.actors(), "policy"].into_iter();
    let counters = workload.mechanism().iter();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_header(headings.chain(counters.clone().map(|(heading, _)| *heading)));
    for row in rows {
        let axes = [
            row.pages.to_string(),
            row.actors.count().to_string(),
            row.policy.clone(),
        ];
        let counts = counters
            .clone()
            .map(|(_, name)| format!("{:.2}", count(row, name)));
        table.add_row(axes.into_iter().chain(counts));
    }
    align(&mut table, 2);
    Some(table.to_string())
}

/// Whether a row is the reference kernel's, which counts what its engine does.
fn is_ours(row: &Row) -> bool {
    row.machine == machine_name(MachineKind::Qemu)
}

/// Whether the machine has shown no tag at all where the workload lives on them.
fn has_no_tags(rows: &[Row], workload: Workload) -> bool {
    let mut ours = rows.iter().filter(|row| is_ours(row)).peekable();
    let is_still = |row: &Row| {
        SWITCHES[..3]
            .iter()
            .all(|(_, name)| count(row, name) == 0.0)
    };
    workload == Workload::Pingpong && ours.peek().is_some() && ours.all(is_still)
}

/// A counter of a row; programs leave out those that did not move.
fn count(row: &Row, name: &str) -> f64 {
    let counter = row.counters.get(name);
    counter.and_then(Value::as_f64).unwrap_or_default()
}

fn whole(ns: f64) -> String {
    format!("{ns:.0}")
}

fn ratio(value: Option<f64>) -> String {
    or_dash(value.map(|ratio| format!("{ratio:.3}")))
}

fn call(row: &Row, cell: impl Fn(&Call) -> String) -> String {
    or_dash(row.call.as_ref().map(cell))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

/// One sentence with the figures that count, or why there are none.
fn against_linux(rows: &[Row], axes: &Axes) -> String {
    let best = rows
        .iter()
        .filter(|row| row.policy == "best" && !row.crowded);
    let mut text = String::from("best / linux:");
    let mut count = 0;
    for row in best {
        if let Some(ratio) = row.ratio_to_linux {
            let comma = if count > 0 { "," } else { "" };
            let actors = axes.actors_in_words(row.actors.count());
            let pages = counted(row.pages, "pages");
            // Writing to a String cannot fail.
            let _ = write!(text, "{comma} {ratio:.3} ({actors}, {pages})");
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
    use super::super::merge::{Setting, merge};
    use super::super::rows::{Printed, Sighting};
    use super::*;

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
        let text = table(merge(&sightings, &setting).iter(), Workload::Madvise);
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
