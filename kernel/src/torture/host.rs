//! The running machine, as the torture sees it.

use shootdown::{CpuId, CpuMask};
use shootdown_torture::Host;

use super::memory::TortureMemory;
use crate::arch::percpu;
use crate::cpus::{Cpus, MAX_CPUS};
use crate::irq;
use crate::platform::{Engine, KernelPlatform, SHOOTDOWN};
use crate::{boot, hotplug, task};

/// The machine, with what it maps.
#[derive(Debug)]
pub(super) struct Machine {
    pub memory: TortureMemory,
}

impl Host<MAX_CPUS> for Machine {
    type Platform = KernelPlatform;
    type Memory = TortureMemory;

    fn engine(&self) -> &Engine {
        &SHOOTDOWN
    }

    fn memory(&self) -> &TortureMemory {
        &self.memory
    }

    fn possible_cpus(&self) -> CpuMask<Cpus> {
        CpuMask::first(boot::info().cpus)
    }

    fn preempt(&self) {
        if irq::enabled() && percpu::preempt_count() == 0 {
            task::yield_now();
        }
    }

    fn take_offline(&self, cpu: CpuId) -> bool {
        hotplug::take_offline(cpu).is_ok()
    }

    fn bring_online(&self, cpu: CpuId) {
        let back = hotplug::bring_online(cpu);
        debug_assert!(back.is_ok(), "no signal interrupts a kernel thread");
    }
}
