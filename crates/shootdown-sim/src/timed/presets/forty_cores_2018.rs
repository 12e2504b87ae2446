//! [`FORTY_CORES_2018`].

use crate::timed::Origin::Fitted;
use crate::timed::preset::{Preset, figure};
use crate::timed::presets::FORTY_CORES;

/// [`FORTY_CORES`] with the system around the TLB that table T2 was measured on.
///
/// What is not given here is as there. Each figure says where it comes from; `./lab bench zerocopy` prints them.
pub(crate) static FORTY_CORES_2018: Preset = Preset {
    name: "40-core-2018",
    about: "two sockets of 20 cores, with the system around the TLB that table T2 was measured on",
    base: Some(&FORTY_CORES),
    figures: &[
        figure(
            "relay_ns",
            1777.0,
            Fitted("T2, after, 1 thread: the rest of 4.98 us"),
        ),
        figure(
            "gather_ns",
            380.0,
            Fitted("T2, 1 thread: 5.39 us before, 4.98 us after"),
        ),
        figure(
            "shared_lines",
            33.0,
            Fitted("T2, after: 1.4 us more with two threads, 2.2 us with eight"),
        ),
    ],
};
