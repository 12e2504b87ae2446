//! Shim of the platform: one CPU whose flushes are counted.

use core::sync::atomic::{AtomicUsize, Ordering};
use shootdown::{CpuId, IpiRefused, LocalFlush, Platform, Root, Shootdown};

/// As many as the kernel has.
pub const MAX_CPUS: usize = 16;

/// The kernel's engine, on a platform that counts its flushes.
pub static SHOOTDOWN: Shootdown<KernelPlatform, MAX_CPUS> = Shootdown::new(KernelPlatform);

/// A machine of one CPU.
#[derive(Debug)]
pub struct KernelPlatform;

static FLUSHES: AtomicUsize = AtomicUsize::new(0);

/// How many local flushes there were so far.
pub fn flushes() -> usize {
    FLUSHES.load(Ordering::Relaxed)
}

// SAFETY: 1. one CPU, 2. without interrupts, 3. 4. nobody translates through these tables, 5. 6. no
// interrupt is ever accepted.
unsafe impl Platform for KernelPlatform {
    type IrqState = ();

    fn current_cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}

    fn preempt_disable(&self) {}

    fn preempt_enable(&self) {}

    fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> {
        Err(IpiRefused)
    }

    fn local_flush(&self, _: LocalFlush) {
        FLUSHES.fetch_add(1, Ordering::Relaxed);
    }

    fn load_root(&self, _: Root) {}

    fn now_ns(&self) -> u64 {
        0
    }
}
