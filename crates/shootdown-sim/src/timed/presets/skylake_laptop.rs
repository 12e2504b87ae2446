//! [`SKYLAKE_LAPTOP`].

use crate::timed::Origin::{Assumed, Published};
use crate::timed::preset::{Preset, figure};

/// One socket of four cores, Skylake at 2.3 GHz: the parameters of table T4.
///
/// Each figure says where it comes from; `./lab bench madvise --machine sim` prints them.
pub(crate) static SKYLAKE_LAPTOP: Preset = Preset {
    name: "skylake-laptop",
    about: "one socket of four cores, Skylake at 2.3 GHz: the parameters of table T4",
    figures: &[
        figure(
            "hit_ns",
            0.4,
            Assumed(
                "one cycle: the latency of 4 cycles (1.6 ns in Molka et al., ICPP 2015) mostly overlaps",
            ),
        ),
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
            "read_occupancy_ns",
            10.0,
            Assumed("the home slot serves one request in about ten nanoseconds"),
        ),
        figure("prefetch_ns", 0.4, Assumed("one issue slot")),
        figure(
            "relax_ns",
            60.9,
            Published("Intel optimization manual, Skylake: PAUSE about 140 cycles"),
        ),
        figure("icr_ns", 60.0, Assumed("as haswell-ep")),
        figure("delivery_core_ns", 45.0, Assumed("as haswell-ep")),
        figure("delivery_socket_ns", 45.0, Assumed("as haswell-ep")),
        figure("delivery_machine_ns", 145.0, Assumed("as haswell-ep")),
        figure("entry_ns", 40.0, Assumed("as haswell-ep")),
        figure(
            "exit_ns",
            60.0,
            Assumed("end of interrupt, registers, IRET"),
        ),
        figure("flush_page_ns", 210.0, Assumed("as haswell-ep")),
        figure(
            "flush_space_ns",
            115.0,
            Published("table T4: flush penalty 0.115 us"),
        ),
        figure("flush_all_ns", 230.0, Assumed("two writes of CR4")),
        figure("invpcid_ns", 100.0, Assumed("about a CR3 write")),
        figure(
            "load_root_ns",
            185.0,
            Published("table T4: flush penalty 0.115 us, beyond a write that keeps"),
        ),
        figure(
            "load_root_kept_ns",
            70.0,
            Assumed("a serialising write without a flush"),
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
        figure("syscall_ns", 70.0, Assumed("as haswell-ep")),
        figure("fault_ns", 150.0, Assumed("as haswell-ep")),
        figure("zero_page_ns", 55.0, Assumed("as haswell-ep")),
        figure("madvise_ns", 115.9, Assumed("as haswell-ep")),
        figure(
            "context_switch_ns",
            400.0,
            Assumed("registers and run queue, without the root"),
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
            "cluster_cpus",
            16.0,
            Published("x2APIC: 16 APIC ids a logical cluster (Intel SDM 10.12.10.2)"),
        ),
        figure(
            "tlb_l1_sets",
            16.0,
            Published("Intel optimization manual, Skylake: 64 entries, 4 ways"),
        ),
        figure(
            "tlb_l1_ways",
            4.0,
            Published("Intel optimization manual, Skylake: 64 entries, 4 ways"),
        ),
        figure(
            "tlb_l2_sets",
            128.0,
            Published("Intel optimization manual, Skylake: 1536 entries, 12 ways"),
        ),
        figure(
            "tlb_l2_ways",
            12.0,
            Published("Intel optimization manual, Skylake: 1536 entries, 12 ways"),
        ),
        figure(
            "walk_cache_entries",
            32.0,
            Assumed("not published; the order of the measured sizes"),
        ),
    ],
};
