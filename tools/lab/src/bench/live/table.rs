//! The tables that people read.

use std::fmt::Write;

use super::command::Measured;
use super::group::Clock;
use crate::bench::calls::Contest;
use crate::bench::columns::{grid, or_dash};
use crate::bench::report;
use crate::bench::row::Row;
use crate::machine::host_cores;

/// Whom the published table compares with.
const ONE_LOCK: &str = "xen-before";

/// The tables of all groups, and the notes that they need.
pub fn render(
    contest: &Contest,
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
        group(contest, one, &mut line);
    }
    if measured
        .iter()
        .flat_map(|it| &it.rows)
        .any(Row::crowds_host)
    {
        line(
            "* more busy CPUs than host cores: times show the host's scheduler too, and are left out where functions are short; counts hold on any host",
        );
    }
    let calls: u64 = measured
        .iter()
        .flat_map(|it| &it.rows)
        .map(|row| row.count("calls"))
        .sum();
    line(&format!(
        "{calls} calls, every one checked when it returned"
    ));
    let is_timed = measured.iter().any(|it| it.group.clock == Clock::Host);
    text + &report::remarks(others.filter(|_| is_timed), is_quick.then_some("few calls"))
}

/// The tables of one start of a machine.
fn group(contest: &Contest, measured: &Measured, line: &mut dyn FnMut(&str)) {
    let rows = &measured.rows;
    line(&format!(
        "\n{}, {} CPUs on {} host cores, {}, functions of {} us",
        contest.name,
        measured.group.cpus,
        host_cores(),
        measured.ground,
        rows[0].number("function_ns").unwrap_or(0.0) / 1000.0,
    ));
    let is_timed = measured.group.clock == Clock::Host;
    let timed: Vec<Row> = rows.iter().filter(|row| row.has_times()).cloned().collect();
    if !timed.is_empty() && is_timed && contest.has_rounds {
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
fn times(row: &Row) -> String {
    let us = |key| row.number(key).unwrap_or(0.0) / 1000.0;
    let (median, p99) = (us("median_ns"), us("p99_ns"));
    format!("{median:.1} {p99:.1} {:.2}", row.unfairness())
}

/// Counts of a row.
fn counts(row: &Row) -> String {
    let shown = if row.may_merge() { 5 } else { 4 };
    let keys = ["ipis", "sends", "entries", "spurious", "runs"];
    let words = keys[..shown]
        .iter()
        .map(|key| format!("{:.2}", row.per_call(key)));
    words.collect::<Vec<_>>().join(" ")
}

/// The published table's shape: the change against one lock, the limit beside it.
fn whole(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for shape in shapes(rows) {
        let of_shape = || rows.iter().filter(|row| row.has_shape_of(shape));
        let Some(lock) = of_shape().find(|row| row.text("peer") == ONE_LOCK) else {
            return format!("(without {ONE_LOCK} there is no change against one lock)");
        };
        let lock_ns = lock.whole_median_ns();
        let limit_ns = shape.number("limit_ns").filter(|&ns| ns > 0.0);
        let limit = or_dash(limit_ns.map(|ns| percent((ns / lock_ns - 1.0) * 100.0)));
        let mut line = axes(shape);
        line.extend([format!("{:.0}", lock_ns / 1000.0), limit]);
        line.extend(of_shape().map(|row| percent(row.change_against(lock))));
        lines.push(line);
    }
    format!(
        "execution time of a round: {ONE_LOCK} in us, others' change against it in percent\n{}",
        table(rows, &[&format!("{ONE_LOCK} us"), "limit"], lines)
    )
}

/// `cell` for each shape and contender.
fn by_peer(rows: &[Row], cell: impl Fn(&Row) -> String) -> String {
    let line = |shape: &Row| {
        let cells = rows.iter().filter(|row| row.has_shape_of(shape)).map(&cell);
        axes(shape).into_iter().chain(cells).collect()
    };
    table(rows, &[], shapes(rows).map(line).collect())
}

/// A table with a column for each contender.
fn table(rows: &[Row], further: &[&str], lines: Vec<Vec<String>>) -> String {
    let first = rows.iter().take_while(|row| row.has_shape_of(&rows[0]));
    let mut heading = vec!["masks", "initiators", "targets"];
    heading.extend(further);
    heading.extend(first.map(|row| row.text("peer")));
    let heading = heading.into_iter().map(str::to_owned).collect();
    grid(heading, lines, |index| index == 0)
}

/// The first contender's row of each shape.
fn shapes(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.agrees(&rows[0], &["peer"]))
}

fn axes(row: &Row) -> Vec<String> {
    let mark = if row.crowds_host() { " *" } else { "" };
    vec![
        format!("{}{mark}", row.text("masks")),
        row.count("initiators").to_string(),
        row.count("targets").to_string(),
    ]
}

fn percent(change: f64) -> String {
    format!("{change:+.1}")
}

#[cfg(test)]
mod tests {
    use super::super::row::{self, tests::line};
    use super::*;

    #[test]
    fn changes_are_against_one_lock_and_every_contender_has_a_column() {
        let read = |peer, whole_ns| row::parse(&line(peer, whole_ns)).unwrap().unwrap();
        let rows = [read("xen-before", 8), read("best", 4)];
        let text = whole(&rows);
        assert!(text.contains("-50.0") && text.contains("+0.0"), "{text}");
        let text = by_peer(&rows, |row| row.text("peer").to_uppercase());
        assert!(
            text.contains("XEN-BEFORE") && text.contains("BEST"),
            "{text}"
        );
        assert!(whole(&rows[1..]).contains("without"));
    }
}
