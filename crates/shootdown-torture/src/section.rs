//! Sections: stretches with interrupts off in which a CPU does nothing but flush and poll.
//!
//! A host holds locks there that called functions take too, so no function may run: neither in a poll, nor in the wait for a
//! flush or for the slot of one. Each function looks at the mark of its CPU.

use shootdown::{Capacity, CpuId, Cpus, Platform};

use crate::host::Host;
use crate::operation::Operation;
use crate::rng::Rng;
use crate::step::Step;
use crate::sync::Tally;
use crate::torture::Torture;
use crate::violation::{Promise, Violation};

/// Turns of a wait that polls, at most.
const MOST_TURNS: u64 = 100;

/// Which CPUs are in a section. Each word is its CPU's own: written with interrupts off, read by functions that run there.
#[derive(Debug)]
pub(crate) struct Sections<const N: usize>([Tally; N]);

impl<const N: usize> Sections<N> {
    pub(crate) const fn new() -> Self {
        Self([const { Tally::new(0) }; N])
    }
}

impl<const N: usize> Torture<N>
where
    Cpus<N>: Capacity,
{
    /// At the beginning of each function that was called on `cpu`: whether it may run there now.
    pub(crate) fn check_section(&self, operation: Option<Operation>, cpu: CpuId) {
        let found = self.sections.0[cpu.index()].get();
        if found != 0 {
            self.ledger.enter(Violation {
                promise: Promise::FlushesOnly,
                operation,
                cpu,
                expected: 0,
                found,
            });
        }
    }
}

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    /// Does the operation, with interrupts off; in a section if it is one that only flushes. Whether it was done.
    pub(crate) fn run_inside(&self, rng: &mut Rng) -> bool {
        match self.operation.is_flushes_only() {
            true => self.section(|| self.run(rng)),
            false => self.run(rng),
        }
    }

    /// Interrupts off for long; nothing is served.
    pub(crate) fn irqs_off(&self, rng: &mut Rng) -> bool {
        let ns = self.some_long_ns(rng);
        self.section(|| self.host.busy(ns));
        true
    }

    /// What a CPU does that waits with interrupts off for a lock.
    pub(crate) fn poll(&self, rng: &mut Rng) -> bool {
        let engine = self.host.engine();
        self.section(|| {
            for _ in 0..=rng.below(MOST_TURNS) {
                engine.poll();
                engine.platform().relax();
            }
        });
        true
    }

    fn section<R>(&self, work: impl FnOnce() -> R) -> R {
        let platform = self.host.engine().platform();
        let irq = platform.irq_save();
        let mark = &self.torture.sections.0[platform.current_cpu().index()];
        let before = mark.get();
        // The operation's number plus one, for reports.
        mark.set(self.operation as u64 + 1);
        let result = work();
        mark.set(before);
        platform.irq_restore(irq);
        result
    }
}
