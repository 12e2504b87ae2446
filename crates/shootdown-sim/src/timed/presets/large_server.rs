//! [`LARGE_SERVER`].

use crate::timed::Origin::Assumed;
use crate::timed::preset::{Preset, figure};
use crate::timed::presets::FORTY_CORES;

/// 64 sockets of 64 cores: 4096 CPUs, for scaling only.
///
/// What is not given here is as in [`FORTY_CORES`]. Each figure says where it comes from; `./lab bench madvise --machine sim` prints them.
pub(crate) static LARGE_SERVER: Preset = Preset {
    name: "large-server",
    about: "64 sockets of 64 cores: 4096 CPUs, for scaling only",
    base: Some(&FORTY_CORES),
    figures: &[
        figure(
            "transfer_machine_ns",
            400.0,
            Assumed("no such machine was measured: about what a node controller adds"),
        ),
        figure(
            "delivery_machine_ns",
            500.0,
            Assumed("as a line transfer, and the arbitration"),
        ),
        figure(
            "threads_per_core",
            1.0,
            Assumed("no such machine was measured: 64 sockets of 64 cores"),
        ),
        figure(
            "cores_per_socket",
            64.0,
            Assumed("no such machine was measured: 64 sockets of 64 cores"),
        ),
    ],
};
