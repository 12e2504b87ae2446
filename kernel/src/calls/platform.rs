//! The platform of the contenders.

use crate::cpus::Cpus;
use shootdown::{CpuId, CpuSet, IpiRefused, LocalFlush, Platform, watch::Stall};

use crate::arch::trap::vectors;
use crate::irq::IrqState;
use crate::platform::{KernelPlatform, send_to, send_to_mask};

/// The kernel's platform, but for the vector, and without tags: those are the kernel's engine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallsPlatform;

// SAFETY: 1 to 4 and 7 to 10 as `KernelPlatform`, whose methods these are. 5 and 6 likewise, on a vector whose handler calls the contender
// whose turn it is; the run sees to it that no interrupt of one is late for another.
unsafe impl Platform for CallsPlatform {
    type Cpus = Cpus;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = IrqState;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        KernelPlatform.current_cpu()
    }

    #[inline]
    #[track_caller]
    fn irq_save(&self) -> IrqState {
        KernelPlatform.irq_save()
    }

    #[inline]
    unsafe fn irq_restore(&self, state: IrqState) {
        // SAFETY: 1. as here.
        unsafe { KernelPlatform.irq_restore(state) };
    }

    #[inline]
    #[track_caller]
    fn preempt_disable(&self) {
        KernelPlatform.preempt_disable();
    }

    #[inline]
    unsafe fn preempt_enable(&self) {
        // SAFETY: 1. as here.
        unsafe { KernelPlatform.preempt_enable() };
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        send_to(target, vectors::CALLS)
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        send_to_mask(targets, vectors::CALLS)
    }

    fn local_flush(&self, operation: LocalFlush) {
        KernelPlatform.local_flush(operation);
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. as here.
        unsafe { KernelPlatform.load_root(root) };
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        KernelPlatform.now_ns()
    }

    #[inline]
    fn prefetch_write(&self, address: usize) {
        KernelPlatform.prefetch_write(address);
    }

    fn on_stall(&self, stall: &Stall) {
        KernelPlatform.on_stall(stall);
    }
}
