//! `sysbench`, the other workload of table T1 as published: Debian's program.

use crate::bench::columns::{Column, Format};
use crate::bench::program::{Merge, Metric};
use crate::bench::row::Row;
use crate::bench::workload::{OnLinux, OwnEffort, Program};
use crate::protocol::Object;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "sysbench",
    about: "Debian's sysbench writes at random to mapped files and syncs them (T1 as published; ./lab image sysbench)",
    default_actors: &[1, 2],
    default_pages: &[4],
    image: Some("sysbench"),
    // A slice is a run of the program.
    effort: Some(OwnEffort {
        quick: [3000, 2, 1, 1],
        whole: [3000, 5, 1, 3],
    }),
    linux: OnLinux::WithDisk,
    title: |pages| {
        format!(
            "sysbench fileio: random writes of {pages} to mapped files, synced every 100; ns an event"
        )
    },
    columns: &COLUMNS,
    metrics: &[ELAPSED],
    notes,
    counters: &[
        ("syncs", "file_syncs"),
        ("flushes", "file_flushes"),
        ("pages", "file_pages_stored"),
        ("acks before flush", "early_acks"),
        ("flushed here first", "flushes_overlapped"),
        ("full flushes", "full_flushes"),
        ("pages dropped", "pages_flushed"),
    ],
    linux_note: Some(
        "on Linux the files are on ext4 on a disk in memory: its msync goes through a file system and a block device, ours through neither",
    ),
    ..Program::PLAIN
};

/// The time that events took, of all runs together.
const ELAPSED: Metric = ("elapsed_ms", Merge::Sum);
const COLUMNS: [Column; 4] = [
    Column::new("iterations", "events", Format::Digits(0)),
    Column::new(ELAPSED.0, "ms of all", Format::Digits(0)),
    Column::new("per_s", "events a second", Format::Digits(0)),
    Column::new("per_s_ratio", "/ before", Format::Digits(3)),
];

fn notes(_: &[Row], about: Option<&Object>) -> Vec<String> {
    let number = |key: &str| {
        about
            .and_then(|about| about.get(key)?.as_u64())
            .unwrap_or(0)
    };
    vec![format!(
        "{} files of {} MiB together; a sync of all of them every {} writes, and one at the end of each run of {} events: an event is a write or a sync",
        number("files"),
        number("file_mib"),
        number("writes_a_sync"),
        number("events"),
    )]
}
