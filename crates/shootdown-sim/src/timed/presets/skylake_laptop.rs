//! [`SKYLAKE_LAPTOP`].

use crate::timed::Origin::{Assumed, Published};
use crate::timed::preset::{Preset, figure};
use crate::timed::presets::FORTY_CORES;

/// One socket of four cores, Skylake at 2.3 GHz: the parameters of table T4.
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
            "load_root_ns",
            185.0,
            Published("table T4: flush penalty 0.115 us, beyond a write that keeps"),
        ),
        figure(
            "tlb_l2_hit_ns",
            1.13,
            Published("table T4: 2.6 cycles at 2.3 GHz"),
        ),
        figure(
            "walk_step_ns",
            9.13,
            Published(
                "table T4: overlapped walk 21 cycles at 2.3 GHz, one step where the upper levels are cached",
            ),
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
    ],
};
