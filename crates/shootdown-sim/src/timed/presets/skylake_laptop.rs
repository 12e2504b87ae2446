//! [`SKYLAKE_LAPTOP`].

use crate::timed::Origin::{Assumed, Fitted, Published};
use crate::timed::preset::{Preset, figure};
use crate::timed::presets::FORTY_CORES;

/// One socket of four cores, Skylake at 2.3 GHz: the parameters of table T4.
///
/// T4's parameters are averages that its own rows imply: (1.8 - 1.22) us / 512 pages is an L2 hit of 2.6 cycles,
/// (6.1 - 1.34) us / 512 a walk of 21, and 0.115 us is between the rows without pages. So these rows say little about the
/// machine; the misses, and every row with more spaces or other numbers of pages, are what it says without having been
/// told.
///
/// What is not given here is as in [`FORTY_CORES`]. Each figure says where it comes from; `./lab bench madvise --machine sim` prints them.
pub(crate) static SKYLAKE_LAPTOP: Preset = Preset {
    name: "skylake-laptop",
    about: "one socket of four cores, Skylake at 2.3 GHz: the parameters of table T4",
    base: Some(&FORTY_CORES),
    figures: &[
        figure(
            "locked_ns",
            8.3,
            Assumed("19 cycles at 2.3 GHz, near the values of Agner Fog's instruction tables"),
        ),
        figure(
            "fence_ns",
            14.3,
            Assumed("33 cycles at 2.3 GHz, near the values of Agner Fog's instruction tables"),
        ),
        figure(
            "transfer_core_ns",
            4.3,
            Assumed("both threads share the first-level cache; a pipeline clear on top of a hit"),
        ),
        figure(
            "transfer_socket_ns",
            40.0,
            Assumed("a ring of four cores is shorter than that of haswell-ep"),
        ),
        figure("transfer_machine_ns", 40.0, Assumed("there is one socket")),
        figure(
            "relax_ns",
            60.9,
            Published("Intel optimization manual, Skylake: PAUSE about 140 cycles"),
        ),
        figure(
            "clock_ns",
            13.9,
            Assumed(
                "RDTSCP, 32 cycles at 2.3 GHz, near the values of Agner Fog's instruction tables",
            ),
        ),
        figure(
            "load_root_ns",
            185.0,
            Published(
                "table T4: flush penalty 0.115 us beyond a write that keeps; its rows without pages imply it",
            ),
        ),
        figure(
            "tlb_l2_hit_ns",
            1.13,
            Published("table T4: 2.6 cycles at 2.3 GHz; its rows with PCID imply it"),
        ),
        figure(
            "walk_step_ns",
            9.13,
            Published(
                "table T4: overlapped walk 21 cycles at 2.3 GHz, one step where the upper levels are cached; its rows without PCID imply it",
            ),
        ),
        figure(
            "wake_ns",
            574.7,
            Fitted("T4, PCID, 0 pages: the rest of 1.22 us"),
        ),
        figure(
            "threads_per_core",
            2.0,
            Assumed("four cores with two threads"),
        ),
        figure(
            "cores_per_socket",
            4.0,
            Assumed("four cores with two threads"),
        ),
        figure(
            "tlb_l1_sets",
            16.0,
            Published("table T4: 64 entries; Intel optimization manual, Skylake: 4 ways"),
        ),
        figure(
            "tlb_l1_ways",
            4.0,
            Published("table T4: 64 entries; Intel optimization manual, Skylake: 4 ways"),
        ),
        figure(
            "tlb_l2_sets",
            128.0,
            Published("table T4: 1536 entries; Intel optimization manual, Skylake: 12 ways"),
        ),
        figure(
            "tlb_l2_ways",
            12.0,
            Published("table T4: 1536 entries; Intel optimization manual, Skylake: 12 ways"),
        ),
        figure(
            "tlb_tags",
            4096.0,
            Assumed(
                "no limit, as table T4 states none; the tool of TLB;DR (USENIX Security 2022) reports 4 for an L2 of this shape: --set tlb_tags=4",
            ),
        ),
    ],
};
