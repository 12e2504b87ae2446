//! [`Setup`]: what a run is built of, besides its programs.

use shootdown::CpuId;
use shootdown::sim::Start;

use crate::kernel::{KernelPages, PAGES_PER_TABLE, PageFlush};

/// What a run is built of, besides its programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The number of each CPU, as the engine knows it.
    pub numbers: Vec<CpuId>,
    /// Kernel threads besides the program of each CPU.
    pub threads: usize,
    /// Whether the kernel's pages are global.
    pub kernel_pages: KernelPages,
    /// What a flush of single pages drops.
    pub page_flush: PageFlush,
    /// From where the engine counts.
    pub start: Start,
    /// From where spaces count generations.
    pub first_generation: u64,
    /// After how long waits are reported; 0 for never.
    pub stall_ns: u64,
    /// Whether its CPUs run guests.
    pub has_guests: bool,
    /// Whether the host loads roots itself, between the halves of a switch. Not where there are windows or global tags.
    pub host_loads: bool,
    /// Whether CPUs start on a root of the host's own, which is free when they have left it.
    pub has_trampoline: bool,
    /// Whether the kernel has two roots.
    pub has_second_root: bool,
    /// How many addresses the kernel maps something at: with few, each is soon given out again.
    pub kernel_addresses: usize,
    /// Whether the host unmaps by guards, some of whose collections are full too early.
    pub has_guards: bool,
    /// How many tickets and guards the host forgets.
    pub forgets: u32,
    /// Whether a second engine has the same CPUs.
    pub has_second_engine: bool,
    /// Whether devices and a shadow table may listen to flushes.
    pub has_secondary: bool,
    /// See [`Policy::global_tags_from`](shootdown::Policy::global_tags_from).
    pub global_tags_from: u16,
}

impl Setup {
    /// What is usual, for CPUs `0..cpus`.
    pub fn usual(cpus: usize, kernel_pages: KernelPages) -> Self {
        Self {
            numbers: (0..cpus as u32).map(CpuId::new).collect(),
            threads: 0,
            kernel_pages,
            page_flush: PageFlush::Structures,
            start: Start {
                ticket: 0,
                number: 0,
                ring_len: 4,
            },
            first_generation: 1,
            stall_ns: 0,
            has_guests: false,
            host_loads: false,
            has_trampoline: false,
            has_second_root: false,
            kernel_addresses: PAGES_PER_TABLE,
            has_guards: false,
            forgets: 0,
            has_second_engine: false,
            has_secondary: false,
            global_tags_from: 0,
        }
    }
}
