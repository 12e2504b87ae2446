//! [`HASWELL_EP`].

use crate::timed::Origin::{Assumed, Fitted, Published};
use crate::timed::preset::{Preset, figure};

/// Two sockets of 18 cores, Haswell-EP: the machine class of table T1.
///
/// Each figure says where it comes from; `./lab bench madvise --machine sim` prints them.
pub(crate) static HASWELL_EP: Preset = Preset {
    name: "haswell-ep",
    about: "two sockets of 18 cores, Haswell-EP: the machine class of table T1",
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
            42.1,
            Published(
                "FD.io CSIT calibration, two-socket Haswell Xeon, Intel MLC: local L2->L2 42.1 HIT, 47.0 HITM; 42.1 agrees better with T1",
            ),
        ),
        figure(
            "transfer_machine_ns",
            108.0,
            Published(
                "FD.io CSIT calibration, two-socket Haswell Xeon, Intel MLC: remote L2->L2 HITM 106.6 to 108.0",
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
            3.9,
            Assumed("9 cycles at 2.3 GHz, near the values of Agner Fog's instruction tables"),
        ),
        figure(
            "clock_ns",
            13.9,
            Assumed(
                "RDTSCP, 32 cycles at 2.3 GHz, near the values of Agner Fog's instruction tables",
            ),
        ),
        figure(
            "icr_ns",
            60.0,
            Assumed("table T1, fitted model: ICR write 60"),
        ),
        figure(
            "delivery_core_ns",
            45.0,
            Assumed("as within the socket: through the same interrupt fabric"),
        ),
        figure(
            "delivery_socket_ns",
            45.0,
            Fitted(
                "T1, before and published, 2 threads: only the sum of delivery and entry counts",
            ),
        ),
        figure(
            "delivery_machine_ns",
            145.0,
            Assumed("one crossing more than within the socket"),
        ),
        figure(
            "entry_ns",
            40.0,
            Fitted(
                "T1, before and published, 2 threads: only the sum of delivery and entry counts",
            ),
        ),
        figure(
            "exit_ns",
            60.0,
            Assumed("end of interrupt, registers, IRET"),
        ),
        figure(
            "flush_page_ns",
            210.0,
            Fitted("T1: the difference of before and published at 2 threads"),
        ),
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
            3.0,
            Assumed("7 cycles at 2.3 GHz on top of a first-level hit"),
        ),
        figure(
            "walk_step_ns",
            5.2,
            Assumed("an entry from the second-level cache, 12 cycles"),
        ),
        figure(
            "syscall_ns",
            70.0,
            Assumed("null system call without mitigations"),
        ),
        figure(
            "fault_ns",
            150.0,
            Assumed("exception, handling of an anonymous page, IRET"),
        ),
        figure(
            "zero_page_ns",
            55.0,
            Assumed("4096 bytes at 32 bytes a cycle"),
        ),
        figure(
            "madvise_ns",
            115.9,
            Fitted("T1, before, 1 thread: the rest of 661"),
        ),
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
            Assumed("one thread of each core runs the program"),
        ),
        figure(
            "cores_per_socket",
            18.0,
            Assumed("the largest of that generation have 18"),
        ),
        figure(
            "cluster_cpus",
            16.0,
            Published("x2APIC: 16 APIC ids a logical cluster (Intel SDM 10.12.10.2)"),
        ),
        figure(
            "tlb_l1_sets",
            16.0,
            Published("Intel optimization manual, Haswell: 64 entries, 4 ways"),
        ),
        figure(
            "tlb_l1_ways",
            4.0,
            Published("Intel optimization manual, Haswell: 64 entries, 4 ways"),
        ),
        figure(
            "tlb_l2_sets",
            128.0,
            Published("Intel optimization manual, Haswell: 1024 entries, 8 ways"),
        ),
        figure(
            "tlb_l2_ways",
            8.0,
            Published("Intel optimization manual, Haswell: 1024 entries, 8 ways"),
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
