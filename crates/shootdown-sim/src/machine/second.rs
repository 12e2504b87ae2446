//! [`SecondPlatform`]: what another engine for the same CPUs finds under itself.

use shootdown::{CpuId, CpuSet, IpiRefused, LocalFlush, Platform};

use crate::machine::{Engine, SimPlatform};

/// A second engine for the CPUs of another one, for calls and flushes of the kernel's pages: it loads no roots and has no tags.
pub type SecondEngine<const N: usize> = Engine<N, SecondPlatform>;

/// The platform of a second engine.
#[derive(Clone, Copy, Default, Debug)]
pub struct SecondPlatform;

// SAFETY: as `SimPlatform`, whose interrupt leads to both engines; nothing loads roots here.
unsafe impl Platform for SecondPlatform {
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        SimPlatform.current_cpu()
    }

    fn irq_save(&self) -> bool {
        SimPlatform.irq_save()
    }

    unsafe fn irq_restore(&self, state: bool) {
        // SAFETY: duty 1.
        unsafe { SimPlatform.irq_restore(state) }
    }

    fn preempt_disable(&self) {
        SimPlatform.preempt_disable();
    }

    unsafe fn preempt_enable(&self) {
        // SAFETY: duty 1.
        unsafe { SimPlatform.preempt_enable() }
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        SimPlatform.send_ipi(target)
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        SimPlatform.send_ipi_mask(targets)
    }

    fn local_flush(&self, operation: LocalFlush) {
        SimPlatform.local_flush(operation);
    }

    unsafe fn load_root(&self, root: u64) {
        unreachable!("the second engine loads root {root}");
    }

    fn now_ns(&self) -> u64 {
        SimPlatform.now_ns()
    }

    fn relax(&self) {
        SimPlatform.relax();
    }
}
