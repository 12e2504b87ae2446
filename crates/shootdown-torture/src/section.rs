//! Sections: stretches with interrupts off in which a CPU does nothing but flush and poll.
//!
//! A host holds locks there that called functions take too, so no function may run: neither in a poll, nor in the wait for a
//! flush or for the slot of one. Each function looks at the mark of its CPU.

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform};

use crate::sync::Tally;

/// Which CPUs are in a section. Each word is its CPU's own: written with interrupts off, read by functions that run there.
#[derive(Debug)]
pub(crate) struct Sections<const N: usize> {
    marks: [Tally; N],
    /// How often each CPU began to serve nothing, or went on serving: odd while it serves nothing.
    silences: [Tally; N],
}

impl<const N: usize> Sections<N> {
    pub(crate) const fn new() -> Self {
        Self {
            marks: [const { Tally::new(0) }; N],
            silences: [const { Tally::new(0) }; N],
        }
    }

    /// The mark of the section that `cpu` is in; 0 for none.
    pub(crate) fn of(&self, cpu: CpuId) -> u64 {
        self.marks[cpu.index()].get()
    }

    /// Does `work` in a section, with interrupts off.
    pub(crate) fn within<R>(
        &self,
        platform: &impl Platform,
        mark: u64,
        work: impl FnOnce() -> R,
    ) -> R {
        let irq = platform.irq_save();
        let section = &self.marks[platform.current_cpu().index()];
        let before = section.get();
        section.set(mark);
        let result = work();
        section.set(before);
        // SAFETY: 1. saved above.
        unsafe { platform.irq_restore(irq) };
        result
    }

    /// Does `work`, which serves nothing, inside a section on `cpu`.
    pub(crate) fn silently(&self, cpu: CpuId, work: impl FnOnce()) {
        let silence = &self.silences[cpu.index()];
        silence.add(1);
        work();
        silence.add(1);
    }

    /// A CPU among `named` that serves nothing now, and which of its silences that is.
    pub(crate) fn silent(&self, named: &CpuMask<Cpus<N>>) -> Option<(CpuId, u64)>
    where
        Cpus<N>: Capacity,
    {
        let silence = |cpu: CpuId| (cpu, self.silences[cpu.index()].get());
        named.iter().map(silence).find(|(_, count)| count % 2 != 0)
    }

    /// Whether that silence lasts.
    pub(crate) fn is_still(&self, (cpu, silence): (CpuId, u64)) -> bool {
        self.silences[cpu.index()].get() == silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_ends_and_the_next_is_another() {
        let (sections, all) = (Sections::<2>::new(), CpuMask::first(2));
        let mut first = None;
        sections.silently(CpuId::new(1), || {
            assert_eq!(sections.silent(&CpuMask::first(1)), None);
            first = sections.silent(&all);
            assert!(first.is_some_and(|it| sections.is_still(it)));
        });
        assert_eq!(sections.silent(&all), None);
        sections.silently(CpuId::new(1), || {
            assert!(first.is_some_and(|it| !sections.is_still(it)));
        });
    }
}
