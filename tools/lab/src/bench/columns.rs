//! What the tables show of each workload: titles, columns, and the counters that show its mechanism.

use serde_json::Value;

use super::rows::{Call, Rate, Row};
use super::waking::Waking;
use super::workload::counted;
use crate::cli::Workload;

/// A column: its heading, and what it shows of a row.
pub type Column = (&'static str, fn(&Row) -> String);

/// Columns before those of the workload.
pub const TIMES: [Column; 5] = [
    ("policy", |row| row.policy.clone()),
    ("median ns", |row| whole(row.median_ns)),
    ("p99 ns", |row| whole(row.p99_ns)),
    ("/ before", |row| ratio(row.ratio)),
    ("/ linux", |row| ratio(row.ratio_to_linux)),
];
/// Columns after them.
pub const COUNTS: [Column; 2] = [
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

const RATES: [Column; 3] = [
    ("op/s", |row| rate(row, |rate| whole(rate.per_s))),
    ("op/s / before", |row| rate(row, |rate| ratio(rate.ratio))),
    ("op/s a CPU", |row| {
        rate(row, |rate| {
            whole(rate.per_s / f64::from(row.actors.count()))
        })
    }),
];

const WAKE_UPS: [Column; 3] = [
    ("max ns", |row| {
        waking(row, |waking| format!("{:.0}", waking.max_ns))
    }),
    ("wake-ups", |row| {
        waking(row, |waking| waking.wakeups.to_string())
    }),
    ("irqs off", |row| {
        waking(row, |waking| waking.irq_offs.to_string())
    }),
];

/// How flushes work: heading, and counter of the engine.
const FLUSHES: &[(&str, &str)] = &[
    ("acks before flush", "early_acks"),
    ("flushed here first", "flushes_overlapped"),
    ("nobody waited", "flushes_unwaited"),
    ("lines read", "shared_lines_read"),
    ("pages dropped", "pages_flushed"),
];
/// How syncs work, likewise.
const SYNCS: &[(&str, &str)] = &[
    ("syncs", "file_syncs"),
    ("flushes", "file_flushes"),
    ("pages", "file_pages_stored"),
    ("acks before flush", "early_acks"),
    ("flushed here first", "flushes_overlapped"),
    ("full flushes", "full_flushes"),
    ("pages dropped", "pages_flushed"),
];
/// How switches work, likewise.
pub const SWITCHES: &[(&str, &str)] = &[
    ("tags kept", "tags_kept"),
    ("tags dropped", "tags_dropped"),
    ("tags taken", "tags_taken"),
    ("lazy skipped", "lazy_skipped"),
];
/// How windows work, likewise.
const WINDOWS: &[(&str, &str)] = &[
    ("window flushes", "window_flushes"),
    ("at next load", "window_flushes_deferred"),
    ("tops copied", "tops_copied"),
    ("pages dropped", "pages_flushed"),
    ("full flushes", "full_flushes"),
    ("tags kept", "tags_kept"),
    ("tags dropped", "tags_dropped"),
];

impl Workload {
    /// What the tables say above: so many pages, and what the time is of.
    pub fn title(self, pages: u32) -> String {
        let pages = counted(pages, "pages");
        match self {
            Self::Madvise => format!(
                "madvise: {pages} a flush; ns an iteration on the initiator, and in its call"
            ),
            Self::Dirtysync => format!(
                "dirtysync: {pages} a write, all threads at once; ns a write with its fdatasync, and in fdatasync alone"
            ),
            Self::Pingpong => {
                format!("pingpong: {pages} read in a turn; ns a turn, all processes on one CPU")
            }
            Self::Zerocopy => format!(
                "zerocopy: {pages} a call, handed to the server of the client's CPU; ns a call"
            ),
            Self::Preemptoff => format!(
                "preemptoff: {pages} an unmap; ns by which a SCHED_FIFO thread wakes up late, an unmapping thread on every CPU"
            ),
        }
    }

    /// The workload's own columns.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Madvise | Self::Dirtysync => &CALL,
            Self::Pingpong => &PAGE,
            Self::Zerocopy => &RATES,
            Self::Preemptoff => &WAKE_UPS,
        }
    }

    /// The counters that show the workload's mechanism.
    pub fn mechanism(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Madvise | Self::Preemptoff => FLUSHES,
            Self::Dirtysync => SYNCS,
            Self::Pingpong => SWITCHES,
            Self::Zerocopy => WINDOWS,
        }
    }
}

/// A counter of a row; programs leave out those that did not move.
pub fn count(row: &Row, name: &str) -> f64 {
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

fn rate(row: &Row, cell: impl Fn(&Rate) -> String) -> String {
    or_dash(row.rate.as_ref().map(cell))
}

fn waking(row: &Row, cell: impl Fn(&Waking) -> String) -> String {
    or_dash(row.waking.as_ref().map(cell))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}
