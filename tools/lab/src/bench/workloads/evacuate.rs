//! `evacuate`: virtual machines that are copied while they run, by the log of dirty pages.

use crate::bench::columns::{Column, Format};
use crate::bench::program::Merge;
use crate::bench::row::Ratio;
use crate::bench::workload::{OnLinux, Program};

/// The workload.
pub const PROGRAM: Program = Program {
    name: "evacuate",
    about: "Virtual machines write while /dev/kvm's log of dirty pages is read, cleared and copied",
    default_actors: &[1, 2],
    default_pages: &[64, 512],
    linux: OnLinux::WithKvm,
    title: |pages| {
        format!(
            "evacuate: virtual machines, {pages} a virtual CPU; ns until a copy is complete; an op is a page that was dirtied"
        )
    },
    columns: &[
        Column::new("per_s", "pages/s", Format::Digits(0)),
        Column::new("per_s_ratio", "/ before", Format::Digits(3)),
        Column::new("per_s_ratio_to_linux", "/ linux", Format::Digits(3)),
        Column::new("clear_percent", "in clears %", Format::Percent),
        Column::new("exits_per_op", "exits/op", Format::Digits(2)),
        Column::new("flushes_per_op", "flushes/op", Format::Digits(3)),
        Column::new("kicks_per_op", "kicks/op", Format::Digits(3)),
    ],
    metrics: &[
        ("per_s_ratio_to_linux", Merge::Ratio),
        ("clear_percent", Merge::Median),
        ("stop_percent", Merge::Median),
        ("exits_per_op", Merge::Median),
        ("flushes_per_op", Merge::Median),
        ("kicks_per_op", Merge::Median),
        ("clears_per_op", Merge::Median),
        ("returns_per_op", Merge::Median),
        ("writes_per_op", Merge::Median),
        ("pages_per_evacuation", Merge::Median),
        ("evacuations", Merge::Sum),
    ],
    ratios: &[Ratio::new(
        "per_s_ratio_to_linux",
        "per_s",
        &[("machine", "linux"), ("policy", "linux")],
    )],
    needs: Some("per_s"),
    counters: &[
        ("flushes of guests", "guest_flushes"),
        ("CPUs kicked", "guest_kicks"),
        ("tags kept", "tags_kept"),
        ("tags dropped", "tags_dropped"),
    ],
    linux_note: Some(
        "on Linux an exit is one of any kind, and flushes are KVM's of a machine's tables; ours counts kicks instead: a flush that finds no CPU in the guest kicks none",
    ),
    simulated: Ok(super::evacuated::SIMULATED),
    ..Program::PLAIN
};
