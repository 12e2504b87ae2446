//! The tables that people read.

use super::ContestPlan;
use super::plan::{Clock, Group, LONG_FUNCTION_NS};
use crate::bench::columns::{Column, Format, grid, table};
use crate::bench::row::Row;
use crate::machine::host_cores;

/// Whom the published table compares with.
const ONE_LOCK: &str = "xen-before";
/// What contenders have in common.
pub const SHAPE: [&str; 5] = ["cpus", "function_ns", "masks", "initiators", "targets"];

/// A column in front of those of contenders: its heading, and what is said of a shape.
pub type Axis<'a> = (&'a str, &'a dyn Fn(&Row) -> String);
/// Of every table.
pub const AXES: [Axis<'static>; 2] = [
    ("initiators", &|row| row.count("initiators").to_string()),
    ("targets", &|row| row.count("targets").to_string()),
];

/// A table with a line for each shape of calls and a column for each of these contenders. The first columns have figures of the shape,
/// or masks.
pub fn by_peer<'a>(
    rows: &[Row],
    peers: impl IntoIterator<Item = &'a str>,
    first: &[Axis<'_>],
    cell: impl Fn(&Row) -> String,
) -> String {
    let peers: Vec<&str> = peers.into_iter().collect();
    let line = |shape: &Row| {
        let of_shape = |row: &&Row| row.agrees(shape, &SHAPE);
        let of = |peer| {
            rows.iter()
                .filter(of_shape)
                .find(move |row| row.text("peer") == peer)
        };
        let cells = peers.iter().filter_map(|&peer| of(peer)).map(&cell);
        first
            .iter()
            .map(|(_, figure)| figure(shape))
            .chain(cells)
            .collect()
    };
    let shapes = rows.iter().filter(|row| row.agrees(&rows[0], &["peer"]));
    let mut heading: Vec<&str> = first.iter().map(|(heading, _)| *heading).collect();
    heading.extend(&peers);
    let has_words = heading[0] == "masks";
    grid(heading, shapes.map(line).collect(), |index| {
        index == 0 && has_words
    })
}

/// The tables of all groups, and the notes that they need.
pub fn render(plan: &ContestPlan<'_>, rows: &[Vec<Row>]) -> String {
    let mut text: String = plan
        .groups
        .iter()
        .zip(rows)
        .map(|(it, rows)| group(plan, it, rows))
        .collect();
    let all = || rows.iter().flatten();
    if all().any(Row::crowds_host) {
        text += "* more busy CPUs than host cores: times show the host's scheduler too, and are left out where functions are short; counts hold on any host\n";
    }
    let calls: u64 = all().map(|row| row.count("calls")).sum();
    text + &format!("{calls} calls, every one checked when it returned\n")
}

/// The tables of one start of a machine.
fn group(plan: &ContestPlan<'_>, group: &Group, rows: &[Row]) -> String {
    let mut text = format!(
        "\n{}, {} CPUs on {} host cores, {}, functions of {} us\n",
        plan.contest.name,
        group.cpus,
        host_cores(),
        plan.ground(group),
        rows[0].us("function_ns"),
    );
    let timed: Vec<Row> = rows.iter().filter(|row| row.has_times()).cloned().collect();
    if !timed.is_empty() && group.clock == Clock::Host && plan.contest.has_rounds {
        text += &whole(&timed);
    }
    let times = match group.clock {
        Clock::Host => &TIMES_US,
        Clock::Instructions => &TIMES_INSTRUCTIONS,
    };
    let mut columns = SHAPES.to_vec();
    columns.extend(times.iter().filter(|_| !timed.is_empty()));
    columns.extend(COUNTS);
    text + &format!(
        "one call; spread: the slowest initiator's p99 by the fastest one's\n{}\n",
        table(&columns, rows)
    )
}

/// Whose calls, and of what shape.
const SHAPES: [Column; 4] = [
    Column::new("masks", "masks", Format::Of(masks)),
    Column::new("initiators", "initiators", Format::Digits(0)),
    Column::new("targets", "targets", Format::Digits(0)),
    Column::new("peer", "peer", Format::Words),
];
/// Times by the host's clock.
const TIMES_US: [Column; 3] = [
    Column::new(
        "median_ns",
        "median us",
        Format::Of(|row| row.time("median_ns")),
    ),
    Column::new("p99_ns", "p99 us", Format::Of(|row| row.time("p99_ns"))),
    SPREAD,
];
/// Times by the number of instructions that all CPUs execute.
const TIMES_INSTRUCTIONS: [Column; 3] = [
    Column::new("median_ns", "median, 1000 instr.", TIMES_US[0].format),
    Column::new("p99_ns", "p99, 1000 instr.", TIMES_US[1].format),
    SPREAD,
];
const SPREAD: Column = Column::new(
    "",
    "spread",
    Format::Of(|row| row.has_times().then(|| format!("{:.2}", row.unfairness()))),
);
/// Counts of a call.
const COUNTS: [Column; 4] = [
    Column::new("ipis", "IPIs", Format::Of(|row| row.count_of_call("ipis"))),
    Column::new(
        "sends",
        "sends",
        Format::Of(|row| row.count_of_call("sends")),
    ),
    Column::new(
        "entries",
        "entries",
        Format::Of(|row| row.count_of_call("entries")),
    ),
    Column::new(
        "spurious",
        "for nothing",
        Format::Of(|row| row.count_of_call("spurious")),
    ),
];
fn masks(row: &Row) -> Option<String> {
    let mark = if row.crowds_host() { " *" } else { "" };
    Some(format!("{}{mark}", row.text("masks")))
}

/// `cell` for each shape and all contenders.
fn of_all(rows: &[Row], further: &[Axis<'_>], cell: impl Fn(&Row) -> String) -> String {
    let masks = |row: &Row| masks(row).unwrap_or_default();
    let first = rows.iter().take_while(|row| row.agrees(&rows[0], &SHAPE));
    let masks: [Axis<'_>; 1] = [("masks", &masks)];
    let axes = [&masks, &AXES[..], further].concat();
    by_peer(rows, first.map(|row| row.text("peer")), &axes, cell)
}

/// Says in each row whose times say something how much longer a round takes than under one lock, and what its masks allow, in percent.
pub fn compare_with_one_lock(rows: &mut [Row]) {
    let locks = rows.iter().filter(|row| row.text("peer") == ONE_LOCK);
    let locks: Vec<Row> = locks.cloned().collect();
    for row in rows.iter_mut().filter(|row| row.has_times()) {
        let Some(lock) = locks.iter().find(|lock| lock.agrees(row, &SHAPE)) else {
            continue;
        };
        let limit_ns = row.number("limit_ns").filter(|&ns| ns > 0.0);
        let limit = limit_ns.map(|ns| (ns / lock.whole_median_ns() - 1.0) * 100.0);
        row.set("change_percent", row.change_against(lock));
        row.set("limit_percent", limit);
    }
}

const CHANGE: Column = Column::new("change_percent", "change", Format::Change);
/// What stands beside the changes.
pub const LIMIT: Column = Column::new("limit_percent", "limit", Format::Change);
/// What is said of it below the table.
pub const LIMIT_NOTE: &str = "limit: the least possible with these masks, if nothing but the function takes time and each target serves one call after the other, in the order in which they come\n";

/// The published table's shape: the change against one lock, the limit beside it.
fn whole(rows: &[Row]) -> String {
    if rows.iter().any(|row| row.number(CHANGE.key).is_none()) {
        return format!("(without {ONE_LOCK} there is no change against one lock)\n");
    }
    let lock_us = |shape: &Row| {
        let is_lock = |row: &&Row| row.text("peer") == ONE_LOCK && row.agrees(shape, &SHAPE);
        let lock = rows.iter().find(is_lock);
        format!("{:.0}", lock.map_or(0.0, Row::whole_median_ns) / 1000.0)
    };
    let limit = |shape: &Row| LIMIT.cell(shape);
    let heading = format!("{ONE_LOCK} us");
    let has_limit = rows.iter().any(|row| row.number(LIMIT.key).is_some());
    format!(
        "execution time of a round: {ONE_LOCK} in us, others' change against it in percent\n{}\n{}",
        of_all(
            rows,
            &[(&heading, &lock_us), (LIMIT.heading, &limit)],
            |row| { CHANGE.cell(row) }
        ),
        if has_limit { LIMIT_NOTE } else { "" },
    )
}

impl Row {
    /// The round in the middle.
    pub fn whole_median_ns(&self) -> f64 {
        middle(self.numbers("whole_ns"))
    }

    /// Whether it keeps more CPUs busy than the host has cores, and tells times: CPUs that rest by spinning are busy too.
    pub fn crowds_host(&self) -> bool {
        let busy = match self.text("rest") {
            "halt" => "busy",
            _ => "cpus",
        };
        let counts_instructions = self.0.get("counts_instructions") == Some(&true.into());
        self.count(busy) > host_cores() as u64 && !counts_instructions
    }

    /// Whether its times say something: the calls' own, or those of functions that are much longer.
    pub fn has_times(&self) -> bool {
        !self.crowds_host() || self.count("function_ns") >= LONG_FUNCTION_NS
    }

    /// How much longer a round takes than the other contender's, in percent: the middle of all rounds, each against the
    /// other's of the same round, for the two come close together.
    pub fn change_against(&self, other: &Self) -> f64 {
        let rounds = self.numbers("whole_ns").zip(other.numbers("whole_ns"));
        middle(rounds.map(|(own, other)| (own / other.max(1.0) - 1.0) * 100.0))
    }

    /// So many of a count a call.
    pub fn per_call(&self, key: &str) -> f64 {
        self.count(key) as f64 / self.count("calls").max(1) as f64
    }

    /// The slowest initiator's 99th percentile by the fastest one's.
    pub fn unfairness(&self) -> f64 {
        let p99_ns = || self.numbers("initiator_p99_ns");
        let most = p99_ns().fold(0.0, f64::max);
        most / p99_ns().reduce(f64::min).unwrap_or(0.0).max(1.0)
    }

    /// So many of a count a call, as it is shown.
    fn count_of_call(&self, key: &str) -> Option<String> {
        Some(format!("{:.2}", self.per_call(key)))
    }

    /// A thousandth of a time, if times say something.
    fn time(&self, key: &str) -> Option<String> {
        self.has_times().then(|| format!("{:.1}", self.us(key)))
    }
}

/// The middle one; 0 of none.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A result with the usual figures.
    fn row(peer: &str, whole_ns: u64) -> Row {
        Row::of(json!({
            "peer": peer, "masks": "disjoint", "initiators": 2, "targets": 1, "function_ns": 0, "rest": "busy", "cpus": 4, "busy": 4,
            "calls": 10, "initiator_p99_ns": [2, 3], "whole_ns": [whole_ns, whole_ns, 1], "ipis": 5,
        }))
    }

    #[test]
    fn changes_are_against_one_lock_and_every_contender_has_a_column() {
        let mut rows = [row("xen-before", 8), row("best", 4)];
        compare_with_one_lock(&mut rows);
        assert!(
            whole(&rows).contains("without"),
            "more CPUs are busy than there are"
        );
        rows.iter_mut()
            .for_each(|row| row.set("function_ns", LONG_FUNCTION_NS));
        compare_with_one_lock(&mut rows);
        let text = whole(&rows);
        assert!(text.contains("-50.0") && text.contains("+0.0"), "{text}");
        assert!(!text.contains(LIMIT_NOTE), "{text}");
        rows.iter_mut().for_each(|row| row.set("limit_ns", 6));
        compare_with_one_lock(&mut rows);
        let text = whole(&rows);
        assert!(
            text.contains("-25.0") && text.ends_with(LIMIT_NOTE),
            "{text}"
        );
        let text = of_all(&rows, &[], |row| row.text("peer").to_uppercase());
        assert!(
            text.contains("XEN-BEFORE") && text.contains("BEST"),
            "{text}"
        );
        assert_eq!(rows[1].number("change_percent"), Some(-50.0));
    }
}
