//! [`Caller`]: what every initiator does around its algorithm.

use shootdown::{Capacity, CpuId, CpuMask, Platform};

/// One call, on the CPU that makes it. Preemption is disabled until it is dropped, as in all the originals.
#[derive(Debug)]
pub(crate) struct Caller<'a, P: Platform> {
    platform: &'a P,
    /// Its CPU.
    pub(crate) me: CpuId,
}

impl<'a, P: Platform> Caller<'a, P> {
    pub(crate) fn new(platform: &'a P) -> Self {
        platform.preempt_disable();
        Self {
            platform,
            me: platform.current_cpu(),
        }
    }

    /// `targets` without this CPU, and whether it was named.
    pub(crate) fn split<C: Capacity>(&self, targets: &CpuMask<C>) -> (CpuMask<C>, bool) {
        let mut others = *targets;
        let is_named = others.remove(self.me);
        (others, is_named)
    }

    /// Interrupts one CPU.
    pub(crate) fn interrupt(&self, target: CpuId) {
        let state = self.platform.irq_save();
        while self.platform.send_ipi(target).is_err() {
            self.platform.relax();
        }
        // SAFETY: 1. saved above.
        unsafe { self.platform.irq_restore(state) };
    }

    /// Interrupts all of `targets`, at once where the platform can.
    pub(crate) fn interrupt_all<C: Capacity>(&self, targets: &CpuMask<C>) {
        if targets.is_empty() {
            return;
        }
        let state = self.platform.irq_save();
        while self.platform.send_ipi_mask(targets.as_set()).is_err() {
            self.platform.relax();
        }
        // SAFETY: 1. saved above.
        unsafe { self.platform.irq_restore(state) };
    }

    /// Runs the function here, as an interrupt would, if this CPU is named.
    pub(crate) fn run_here(&self, is_named: bool, function: &(dyn Fn(CpuId) + Sync)) {
        if is_named {
            let state = self.platform.irq_save();
            function(self.me);
            // SAFETY: 1. saved above.
            unsafe { self.platform.irq_restore(state) };
        }
    }

    /// Spins until `condition` holds.
    pub(crate) fn wait_until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            self.platform.relax();
        }
    }
}

impl<P: Platform> Drop for Caller<'_, P> {
    fn drop(&mut self) {
        // SAFETY: 1. disabled when this was made.
        unsafe { self.platform.preempt_enable() };
    }
}
