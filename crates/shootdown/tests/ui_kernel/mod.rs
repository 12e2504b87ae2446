//! A kernel of one CPU for the compile-fail cases.
#![allow(dead_code, missing_debug_implementations)]

use shootdown::*;

pub struct Kernel;

// SAFETY: never run.
unsafe impl Platform for Kernel {
    type Cpus = Cpus<4>;
    type IrqState = ();
    fn current_cpu(&self) -> CpuId {
        CpuId::new(0)
    }
    fn irq_save(&self) {}
    unsafe fn irq_restore(&self, (): ()) {}
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}
    fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> {
        Ok(())
    }
    fn local_flush(&self, _: LocalFlush) {}
    unsafe fn load_root(&self, _: u64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

/// A root that is never loaded.
pub fn tables(number: u64) -> Root {
    // SAFETY: never run.
    unsafe { Root::new(number) }
}

pub static SHOOTDOWN: Shootdown<Kernel> = Shootdown::new(Kernel);
