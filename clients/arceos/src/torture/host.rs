//! The machine, as the torture sees it.

use core::time::Duration;

use axstd::thread;
use shootdown::{CpuMask, Cpus, Shootdown};
use shootdown_torture::Host;

use super::memory::KernelPages;
use crate::platform::{ArceOs, CPUS, SHOOTDOWN, is_preemptible};

/// With what it maps.
#[derive(Debug)]
pub(super) struct Machine {
    pub memory: KernelPages,
}

impl Machine {
    pub const fn new() -> Self {
        Self {
            memory: KernelPages::new(),
        }
    }
}

impl Host<CPUS> for Machine {
    type Platform = ArceOs;
    type Memory = KernelPages;

    fn engine(&self) -> &Shootdown<ArceOs> {
        &SHOOTDOWN
    }

    fn memory(&self) -> &KernelPages {
        &self.memory
    }

    fn possible_cpus(&self) -> CpuMask<Cpus<CPUS>> {
        CpuMask::first(CPUS)
    }

    fn preempt(&self) {
        if is_preemptible() {
            thread::yield_now();
        }
    }

    fn rest(&self, ns: u64) {
        if is_preemptible() {
            thread::sleep(Duration::from_nanos(ns));
        }
    }
}
