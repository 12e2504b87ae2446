//! Sections: stretches with interrupts off in which a CPU does nothing but flush and poll.
//!
//! A host holds locks there that called functions take too, so no function may run: neither in a poll, nor in the wait for a
//! flush or for the slot of one. Each function looks at the mark of its CPU.

use shootdown::{CpuId, Platform};

use crate::sync::Tally;

/// Which CPUs are in a section. Each word is its CPU's own: written with interrupts off, read by functions that run there.
#[derive(Debug)]
pub(crate) struct Sections<const N: usize>([Tally; N]);

impl<const N: usize> Sections<N> {
    pub(crate) const fn new() -> Self {
        Self([const { Tally::new(0) }; N])
    }

    /// The mark of the section that `cpu` is in; 0 for none.
    pub(crate) fn of(&self, cpu: CpuId) -> u64 {
        self.0[cpu.index()].get()
    }

    /// Does `work` in a section, with interrupts off.
    pub(crate) fn within<R>(
        &self,
        platform: &impl Platform,
        mark: u64,
        work: impl FnOnce() -> R,
    ) -> R {
        let irq = platform.irq_save();
        let section = &self.0[platform.current_cpu().index()];
        let before = section.get();
        section.set(mark);
        let result = work();
        section.set(before);
        // SAFETY: 1. saved above.
        unsafe { platform.irq_restore(irq) };
        result
    }
}
