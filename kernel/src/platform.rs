//! What the engine needs from this kernel, and the one engine of the machine.

use shootdown::{CpuId, CpuSet, IpiRefused, LocalFlush, Platform, Root, Shootdown};

use crate::arch::irq::{self, IrqState};
use crate::arch::percpu;

/// Most CPUs that the kernel uses; more in the machine stay parked.
pub const MAX_CPUS: usize = 16;

/// The engine type of this kernel.
pub type Engine = Shootdown<KernelPlatform, MAX_CPUS>;

/// Cross-CPU calls and TLB shootdown for the whole kernel.
pub static SHOOTDOWN: Engine = Shootdown::new(KernelPlatform);

/// The running machine, as the engine sees it.
#[derive(Debug)]
pub struct KernelPlatform;

// SAFETY: placeholder until the local APIC is up; replaced together with the boot code.
unsafe impl Platform for KernelPlatform {
    type IrqState = IrqState;

    fn current_cpu(&self) -> CpuId {
        percpu::cpu_id()
    }

    fn irq_save(&self) -> IrqState {
        irq::save()
    }

    fn irq_restore(&self, state: IrqState) {
        irq::restore(state);
    }

    fn preempt_disable(&self) {
        percpu::preempt_disable();
    }

    fn preempt_enable(&self) {
        percpu::preempt_enable();
    }

    fn send_ipi(&self, _target: CpuId) -> Result<(), IpiRefused> {
        todo!()
    }

    fn send_ipi_mask(&self, _targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        todo!()
    }

    fn local_flush(&self, _operation: LocalFlush) {
        todo!()
    }

    fn load_root(&self, _root: Root) {
        todo!()
    }

    fn now_ns(&self) -> u64 {
        crate::time::now_ns()
    }
}
