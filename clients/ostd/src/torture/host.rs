//! The machine, as the torture sees it: one worker a CPU, which neither sleeps nor is preempted.

use shootdown::{CpuMask, Cpus, Shootdown};
use shootdown_torture::Host;

use super::memory::UserPages;
use crate::cpus;
use crate::platform::{MAX_CPUS, Ostd, SHOOTDOWN};

/// With what it maps.
#[derive(Debug)]
pub(super) struct Machine {
    pub memory: UserPages,
}

impl Host<MAX_CPUS> for Machine {
    type Platform = Ostd;
    type Memory = UserPages;

    fn engine(&self) -> &Shootdown<Ostd> {
        &SHOOTDOWN
    }

    fn memory(&self) -> &UserPages {
        &self.memory
    }

    fn possible_cpus(&self) -> CpuMask<Cpus<MAX_CPUS>> {
        CpuMask::first(cpus::count())
    }
}
