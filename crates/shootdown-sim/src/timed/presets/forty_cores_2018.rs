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
            100.0,
            Fitted(
                "T2, before and after: the rest of a call, as far as the server's space is not loaded yet",
            ),
        ),
        figure(
            "serve_ns",
            1680.0,
            Fitted("T2, after, 1 thread: the rest of 4.98 us"),
        ),
        figure(
            "gather_ns",
            380.0,
            Fitted("T2, 1 thread: 5.39 us before, 4.98 us after"),
        ),
        figure(
            "shared_lines",
            30.0,
            Fitted("T2, after: 1.4 us more with two threads, 2.2 us with eight"),
        ),
        figure(
            "shared_serial_ns",
            558.0,
            Fitted("T2, after: 1.65 to 1.78 million operations a second from 18 threads on"),
        ),
        figure(
            "delivery_socket_ns",
            820.0,
            Fitted(
                "T2, before, 2 and 4 threads: slow interrupts, as of a kernel with mitigations or of a guest",
            ),
        ),
        figure(
            "delivery_machine_ns",
            920.0,
            Fitted("T2, before, 2 and 4 threads; as much more than in a socket as 40-core has"),
        ),
        figure("entry_ns", 450.0, Fitted("T2, before, 4 to 48 threads")),
        figure("exit_ns", 210.0, Fitted("T2, before, 4 to 48 threads")),
        figure(
            "flush_space_ns",
            2120.0,
            Fitted(
                "T2, before, 4 to 48 threads: a full flush, with the misses that it costs whoever was interrupted",
            ),
        ),
    ],
};
