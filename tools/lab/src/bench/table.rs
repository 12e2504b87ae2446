//! The tables that people read.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::columns::{COUNTS, Column, SWITCHES, TIMES, count};
use super::plan::Plan;
use super::rows::{Row, machine_name};
use super::waking;
use super::workload::{Axes, counted};
use crate::cli::{Bench, MachineKind, Workload};
use crate::machine::host_cores;
use crate::protocol::Object;

/// Above this, times of two threads on two cores are no longer those of the machine alone.
const NOISE_CORES: f64 = 0.1;

/// One table for each number of pages, the notes that they need, and the comparison with Linux.
///
/// `program` is what the program said of itself.
pub fn render(
    bench: &Bench,
    plan: &Plan,
    rows: &[Row],
    program: Option<&Object>,
    others: Option<f64>,
) -> String {
    let axes = &plan.axes;
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    for &pages in &axes.pages {
        line(format!("\n{}", axes.workload.title(pages)));
        let rows = rows.iter().filter(|row| row.pages == pages);
        line(table(rows.clone(), axes.workload));
        if let Some(spans) = waking::table(rows) {
            line("the longest span with preemption off, for each CPU and interval".into());
            line(spans);
        }
    }
    if axes.workload == Workload::Preemptoff {
        waking::notes(rows, program).into_iter().for_each(&mut line);
    }
    if has_no_tags(rows, axes.workload) {
        line("\nno hardware tags here (kept 0, dropped 0, taken 0): each switch forgets everything under every policy; --machine sim has them".into());
    } else if let Some(counts) = mechanism(rows, axes.workload) {
        line("\nwhat the engine counted an iteration; counts hold on any host".into());
        line(counts);
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
    if axes.workload == Workload::Dirtysync && has_linux(rows) {
        line("on Linux the file is on ext4 on a disk in memory: its fdatasync goes through a file system and a block device, ours through neither".into());
    }
    // Where programs cannot keep interrupts off on Linux, there is nothing to compare with.
    let is_compared = match axes.workload {
        Workload::Madvise | Workload::Pingpong => true,
        Workload::Preemptoff | Workload::Dirtysync => has_linux(rows),
        // Linux has no such service.
        Workload::Zerocopy => false,
    };
    if rows.iter().any(|row| row.policy == "best") && is_compared && waking::is_one_load(rows) {
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

/// Whether Linux was measured.
fn has_linux(rows: &[Row]) -> bool {
    let linux = machine_name(MachineKind::Linux);
    rows.iter().any(|row| row.machine == linux)
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

    fn turns(policy: &str, counters: &str) -> Row {
        let text = format!(
            r#"{{"policy":"{policy}","spaces":2,"pages":0,"median_ns":900,"p99_ns":990,"min_ns":1,
                "iterations":3,"ipis_per_op":0,"stale":0,"counters":{counters}}}"#
        );
        let sighting = Sighting {
            machine: MachineKind::Qemu,
            boot: 0,
            row: serde_json::from_str(&text).unwrap(),
        };
        let setting = Setting {
            cpus: 2,
            accel: "tcg".into(),
            is_crowded: false,
        };
        merge(&[sighting], &setting).remove(0)
    }

    #[test]
    fn where_there_are_tags_they_are_counted_and_elsewhere_that_is_said() {
        let without = turns("before", r#"{"local_flushes":0.1}"#);
        let with = turns("best", r#"{"tags_kept":0.75,"tags_taken":0.25}"#);
        let (pingpong, madvise) = (Workload::Pingpong, Workload::Madvise);
        assert!(has_no_tags(std::slice::from_ref(&without), pingpong));
        assert!(!has_no_tags(std::slice::from_ref(&without), madvise));
        assert!(!has_no_tags(&[], pingpong));
        let rows = [without, with];
        assert!(!has_no_tags(&rows, pingpong));
        let text = mechanism(&rows, pingpong).unwrap();
        assert!(text.contains("tags kept") && text.contains("0.75") && text.contains("0.25"));
        assert!(table(rows.iter(), pingpong).contains("ns a page"));
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
