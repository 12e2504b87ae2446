//! [`SecondPlatform`]: what another engine for the same CPUs finds under itself.

use std::marker::PhantomData;

use shootdown::{Capacity, CpuId, CpuSet, IpiRefused, LocalFlush, Platform};

use crate::machine::{Engine, PLATFORM};

/// A second engine for the CPUs of another one, for calls and flushes of the kernel's pages: it loads no roots and has no tags.
pub type SecondEngine<C> = Engine<C, SecondPlatform<C>>;

/// The platform of a second engine.
#[derive(Clone, Copy, Default, Debug)]
pub struct SecondPlatform<C>(PhantomData<C>);

// SAFETY: as `SimPlatform`, whose interrupt leads to both engines; nothing loads roots here.
unsafe impl<C: Capacity> Platform for SecondPlatform<C> {
    type Cpus = C;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        PLATFORM.current_cpu()
    }

    fn irq_save(&self) -> bool {
        PLATFORM.irq_save()
    }

    unsafe fn irq_restore(&self, state: bool) {
        // SAFETY: duty 1.
        unsafe { PLATFORM.irq_restore(state) }
    }

    fn preempt_disable(&self) {
        PLATFORM.preempt_disable();
    }

    unsafe fn preempt_enable(&self) {
        // SAFETY: duty 1.
        unsafe { PLATFORM.preempt_enable() }
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        PLATFORM.send_ipi(target)
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        PLATFORM.send_ipi_mask(targets)
    }

    fn local_flush(&self, operation: LocalFlush) {
        PLATFORM.local_flush(operation);
    }

    unsafe fn load_root(&self, root: u64) {
        unreachable!("the second engine loads root {root}");
    }

    fn now_ns(&self) -> u64 {
        PLATFORM.now_ns()
    }

    fn relax(&self) {
        PLATFORM.relax();
    }
}
