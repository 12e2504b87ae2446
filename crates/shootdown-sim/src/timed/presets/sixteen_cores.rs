//! [`SIXTEEN_CORES`].

use crate::timed::Origin::Assumed;
use crate::timed::preset::{Preset, figure};
use crate::timed::presets::FORTY_CORES;

/// One socket of 16 cores: the size of the machine of table T3.
///
/// What is not given here is as in [`FORTY_CORES`]. Each figure says where it comes from; `./lab bench madvise --machine sim` prints them.
pub(crate) static SIXTEEN_CORES: Preset = Preset {
    name: "16-core",
    about: "one socket of 16 cores: the size of the machine of table T3",
    base: Some(&FORTY_CORES),
    figures: &[
        figure(
            "threads_per_core",
            1.0,
            Assumed("table T3 says 16 CPUs and no more"),
        ),
        figure(
            "cores_per_socket",
            16.0,
            Assumed("table T3 says 16 CPUs and no more"),
        ),
    ],
};
