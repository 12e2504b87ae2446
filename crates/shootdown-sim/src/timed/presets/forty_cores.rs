//! [`FORTY_CORES`].

use crate::timed::Origin::{Assumed, Published};
use crate::timed::preset::{Preset, figure};

/// Two sockets of 20 cores: the size of the machine of table T2.
///
/// Each figure says where it comes from; `./lab bench madvise --machine sim` prints them.
pub(crate) static FORTY_CORES: Preset = Preset {
    name: "40-core",
    about: "two sockets of 20 cores: the size of the machine of table T2",
    base: None,
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
            7.9,
            Assumed("19 cycles at 2.4 GHz, near the values of Agner Fog's instruction tables"),
        ),
        figure(
            "fence_ns",
            13.8,
            Assumed("33 cycles at 2.4 GHz, near the values of Agner Fog's instruction tables"),
        ),
        figure(
            "transfer_core_ns",
            4.2,
            Assumed("both threads share the first-level cache; a pipeline clear on top of a hit"),
        ),
        figure(
            "transfer_socket_ns",
            50.3,
            Published(
                "Intel MLC 3.5 on a Skylake-SP testbed of FD.io CSIT: local L2->L2 HITM 50.3",
            ),
        ),
        figure(
            "transfer_machine_ns",
            108.6,
            Published(
                "Intel MLC 3.5 on a Skylake-SP testbed of FD.io CSIT: remote L2->L2 HITM 108.6 where the writer is home",
            ),
        ),
        figure(
            "read_occupancy_ns",
            10.0,
            Assumed("the home slot serves one request in about ten nanoseconds"),
        ),
        figure("prefetch_ns", 0.4, Assumed("one issue slot")),
        figure(
            "relax_ns",
            58.3,
            Published("Intel optimization manual, Skylake: PAUSE about 140 cycles"),
        ),
        figure(
            "clock_ns",
            13.3,
            Assumed(
                "RDTSCP, 32 cycles at 2.4 GHz, near the values of Agner Fog's instruction tables",
            ),
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
            Assumed("a write that keeps, and the flush penalty"),
        ),
        figure(
            "load_root_kept_ns",
            70.0,
            Assumed("a serialising write without a flush"),
        ),
        figure(
            "tlb_l2_hit_ns",
            3.8,
            Assumed("9 cycles, the difference of the two levels on Skylake"),
        ),
        figure(
            "walk_step_ns",
            5.8,
            Assumed("an entry from the second-level cache, 14 cycles"),
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
        figure("wake_ns", 500.0, Assumed("as skylake-laptop")),
        figure(
            "request_ns",
            410.0,
            Assumed(
                "table T2: what is left of a thread's time beside its calls, 0.3 to 0.5 us with few threads",
            ),
        ),
        figure("relay_ns", 500.0, Assumed("as the wake-up of table T4")),
        figure(
            "map_page_ns",
            100.0,
            Assumed("finding the table, taking its lock, writing the entry"),
        ),
        figure("serve_ns", 200.0, Assumed("looking up what is asked for")),
        figure(
            "gather_ns",
            380.0,
            Assumed("as 40-core-2018, where it is fitted"),
        ),
        figure(
            "copy_page_ns",
            150.0,
            Assumed("4 KiB from and to the second-level cache, 11 bytes a cycle"),
        ),
        figure(
            "shared_lines",
            30.0,
            Assumed("as 40-core-2018, where it is fitted"),
        ),
        figure(
            "shared_serial_ns",
            558.0,
            Assumed("as 40-core-2018, where it is fitted"),
        ),
        figure(
            "asid_slots",
            64.0,
            Assumed(
                "the engine's default, a kibibyte for each CPU; docs/measuring.md has the measurement",
            ),
        ),
        figure(
            "threads_per_core",
            1.0,
            Assumed("table T2 says 40 cores and no more"),
        ),
        figure(
            "cores_per_socket",
            20.0,
            Assumed("table T2 says 40 cores and no more"),
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
        figure(
            "tlb_tags",
            4096.0,
            Assumed("no limit: table T4 states none (see skylake-laptop)"),
        ),
    ],
};
