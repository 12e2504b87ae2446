//! `dirtysync`, the other workload of table T1.

use super::madvise::CALL;
use crate::bench::workload::{OnLinux, Program};

/// The workload.
pub const PROGRAM: Program = Program {
    name: "dirtysync",
    about: "All threads write through a shared mapping of a file and sync it (also of T1)",
    default_pages: &[4],
    linux: OnLinux::WithDisk,
    title: |pages| {
        format!(
            "dirtysync: {pages} a write, all threads at once; ns a write with its fdatasync, and in fdatasync alone"
        )
    },
    columns: &CALL,
    needs: Some("call_median_ns"),
    counters: SYNCS,
    linux_note: Some(
        "on Linux the file is on ext4 on a disk in memory: its fdatasync goes through a file system and a block device, ours through neither",
    ),
    simulated: Err((
        "the simulated machine has no files: dirtysync cannot be measured there",
        "use --machine qemu",
    )),
    ..Program::PLAIN
};

/// How syncs of files work: heading, and counter.
pub const SYNCS: &[(&str, &str)] = &[
    ("syncs", "file_syncs"),
    ("flushes", "file_flushes"),
    ("pages", "file_pages_stored"),
    ("acks before flush", "early_acks"),
    ("flushed here first", "flushes_overlapped"),
    ("full flushes", "full_flushes"),
    ("pages dropped", "pages_flushed"),
];
