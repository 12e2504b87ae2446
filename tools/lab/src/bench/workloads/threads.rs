//! `threads`: threads that change memory of their own, beside each other.

use crate::bench::columns::{Column, Format};
use crate::bench::program::Merge;
use crate::bench::row::Ratio;
use crate::bench::workload::Program;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "threads",
    about: "All threads change memory of their own, or share a part of it, again and again",
    default_actors: &[1, 2],
    operations: &[
        "discard",
        "map",
        "malloc",
        "stack",
        "freed",
        "shared-1",
        "shared-10",
        "shared-100",
    ],
    own_policy: Some(UNTRACKED),
    default_policies: ["before", UNTRACKED, "best"],
    title: |pages| format!("threads: {pages} an operation, all threads at once; ns an operation"),
    columns: &[
        Column::new("per_s", "operations/s", Format::Digits(0)),
        Column::new("scaling", "/ one thread", Format::Digits(2)),
        Column::new("per_s_ratio_to_untracked", "/ untracked", Format::Digits(2)),
        Column::new("per_s_ratio_to_linux", "/ linux", Format::Digits(2)),
    ],
    metrics: &[
        ("scaling", Merge::Ratio),
        ("per_s_ratio_to_untracked", Merge::Ratio),
        ("per_s_ratio_to_linux", Merge::Ratio),
    ],
    ratios: &[
        Ratio::new("scaling", "per_s", &[("threads", "1")]),
        Ratio::new(
            "per_s_ratio_to_untracked",
            "per_s",
            &[("policy", UNTRACKED)],
        ),
        Ratio::new(
            "per_s_ratio_to_linux",
            "per_s",
            &[("machine", "linux"), ("policy", "linux")],
        ),
    ],
    needs: Some("per_s"),
    counters: &[
        ("regions taken", "regions_taken"),
        ("given up", "regions_given_up"),
        ("pages dropped", "pages_flushed"),
        ("full flushes", "full_flushes"),
    ],
    notes: |_, _| {
        vec![
            "untracked: best in spaces that are not tracked; before: likewise".into(),
            "shared-1, -10, -100: so many of a hundred discards are of pages that all threads read"
                .into(),
        ]
    },
    ..Program::PLAIN
};

/// The row of `best` without tracked spaces.
const UNTRACKED: &str = "untracked";
