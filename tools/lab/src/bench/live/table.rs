//! The tables that people read.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use shootdown_calls::Workload;

use super::command::Measured;
use super::group::Clock;
use super::row::LiveRow;
use crate::machine::host_cores;

/// Whom the published table compares with.
const ONE_LOCK: &str = "xen-before";
/// Above this, times on two cores are no longer those of the machine alone.
const NOISE_CORES: f64 = 0.1;

/// The tables of all groups, and the notes that they need.
pub fn render(
    workload: Workload,
    measured: &[Measured],
    others: Option<f64>,
    is_quick: bool,
) -> String {
    let mut text = String::new();
    let mut line = |words: &str| {
        // A string takes everything.
        let _ = writeln!(text, "{words}");
    };
    for one in measured {
        group(workload, one, &mut line);
    }
    if measured
        .iter()
        .flat_map(|it| &it.rows)
        .any(LiveRow::is_crowded)
    {
        line(
            "* more busy CPUs than host cores: times show the host's scheduler too, and are left out where functions are short; counts hold on any host",
        );
    }
    let calls: u64 = measured
        .iter()
        .flat_map(|it| &it.rows)
        .map(|row| row.calls)
        .sum();
    line(&format!(
        "{calls} calls, every one checked when it returned"
    ));
    let is_timed = measured.iter().any(|it| it.group.clock == Clock::Host);
    if let Some(cores) = others.filter(|&cores| is_timed && cores > NOISE_CORES) {
        line(&format!(
            "other work kept {cores:.1} host cores busy meanwhile: take figures again when the host is quiet"
        ));
    }
    if is_quick {
        line("--quick: few calls, for a look; take figures without it");
    }
    text
}

/// The tables of one start of a machine.
fn group(workload: Workload, measured: &Measured, line: &mut dyn FnMut(&str)) {
    let rows = &measured.rows;
    line(&format!(
        "\n{}, {} CPUs on {} host cores, {}, functions of {} us",
        workload.name(),
        measured.group.cpus,
        host_cores(),
        measured.ground,
        rows[0].function_ns as f64 / 1000.0,
    ));
    let is_timed = measured.group.clock == Clock::Host;
    let timed: Vec<LiveRow> = rows.iter().filter(|row| row.has_times()).cloned().collect();
    if !timed.is_empty() && is_timed && workload == Workload::Selected {
        line(&whole(&timed));
    }
    if !timed.is_empty() {
        let unit = match measured.group.clock {
            Clock::Host => "us",
            Clock::Instructions => "thousands of instructions, of all CPUs together",
        };
        line(&format!(
            "a call: median, 99th percentile in {unit}; the slowest initiator's 99th percentile by the fastest one's"
        ));
        line(&by_peer(&timed, times));
    }
    line(
        "a call: interrupts sent, times sent, handlers entered, of these for nothing; functions run, where they may be merged",
    );
    line(&by_peer(rows, counts));
}

/// Times of a row.
fn times(row: &LiveRow) -> String {
    let us = |ns: u64| ns as f64 / 1000.0;
    let (median, p99) = (us(row.median_ns), us(row.p99_ns));
    format!("{median:.1} {p99:.1} {:.2}", row.unfairness())
}

/// Counts of a row.
fn counts(row: &LiveRow) -> String {
    let counts = [row.ipis, row.sends, row.entries, row.spurious, row.runs];
    let shown = if row.may_merge() { 5 } else { 4 };
    let words = counts[..shown]
        .iter()
        .map(|count| format!("{:.2}", row.per_call(*count)));
    words.collect::<Vec<_>>().join(" ")
}

/// The published table's shape: the change against one lock, the limit beside it.
fn whole(rows: &[LiveRow]) -> String {
    let mut table = table(rows, &[&format!("{ONE_LOCK} us"), "limit"]);
    for shape in shapes(rows) {
        let of_shape = || rows.iter().filter(|row| row.has_shape_of(shape));
        let Some(lock) = of_shape().find(|row| row.peer == ONE_LOCK) else {
            return format!("(without {ONE_LOCK} there is no change against one lock)");
        };
        let lock_ns = lock.whole_median_ns() as f64;
        let limit = match shape.limit_ns {
            0 => "-".to_owned(),
            limit_ns => percent((limit_ns as f64 / lock_ns - 1.0) * 100.0),
        };
        let first = [format!("{:.0}", lock_ns / 1000.0), limit];
        let changes = of_shape().map(|row| percent(row.change_against(lock)));
        table.add_row(axes(shape).into_iter().chain(first).chain(changes));
    }
    align(&mut table);
    format!(
        "execution time of a round: {ONE_LOCK} in us, others' change against it in percent\n{table}"
    )
}

/// `cell` for each shape and contender.
fn by_peer(rows: &[LiveRow], cell: impl Fn(&LiveRow) -> String) -> String {
    let mut table = table(rows, &[]);
    for shape in shapes(rows) {
        let cells = rows.iter().filter(|row| row.has_shape_of(shape)).map(&cell);
        table.add_row(axes(shape).into_iter().chain(cells));
    }
    align(&mut table);
    table.to_string()
}

/// A table with a column for each contender.
fn table(rows: &[LiveRow], further: &[&str]) -> Table {
    let mut table = Table::new();
    let first = rows.iter().take_while(|row| row.has_shape_of(&rows[0]));
    let peers = first.map(|row| row.peer.as_str());
    let headings = ["masks", "initiators", "targets"].into_iter();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_header(headings.chain(further.iter().copied()).chain(peers));
    table
}

/// The first contender's row of each shape.
fn shapes(rows: &[LiveRow]) -> impl Iterator<Item = &LiveRow> {
    rows.iter().filter(|row| row.peer == rows[0].peer)
}

fn axes(row: &LiveRow) -> [String; 3] {
    let mark = if row.is_crowded() { " *" } else { "" };
    [
        format!("{}{mark}", row.masks),
        row.initiators.to_string(),
        row.targets.to_string(),
    ]
}

fn percent(change: f64) -> String {
    format!("{change:+.1}")
}

/// Numbers to the right.
fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::line;
    use super::*;

    #[test]
    fn changes_are_against_one_lock_and_every_contender_has_a_column() {
        let read = |peer, whole_ns| LiveRow::parse(&line(peer, whole_ns)).unwrap().unwrap();
        let rows = [read("xen-before", 8), read("best", 4)];
        let text = whole(&rows);
        assert!(text.contains("-50.0") && text.contains("+0.0"), "{text}");
        let text = by_peer(&rows, |row| row.peer.to_uppercase());
        assert!(
            text.contains("XEN-BEFORE") && text.contains("BEST"),
            "{text}"
        );
        assert!(whole(&rows[1..]).contains("without"));
    }
}
