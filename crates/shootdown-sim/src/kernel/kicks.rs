//! Kicks, and the stretches without interrupts that their targets have left when they are over.

use shootdown::{Capacity, CpuMask};

use crate::kernel::World;
use crate::kernel::sightings::Sight;
use crate::machine::{FailureKind, context};

/// A stretch without interrupts is so long at most, in events.
const LONGEST_STRETCH: usize = 80;

impl<C: Capacity> World<C> {
    /// Keeps interrupts off and does not poll.
    pub(super) fn keep_interrupts_off(&self, events: usize) {
        context().preempt_disable();
        let me = context().cpu();
        self.with_interrupts(true, || {
            self.stretches[me].set(self.next_stretch.get());
            self.next_stretch.set(self.next_stretch.get() + 1);
            (0..1 + events % LONGEST_STRETCH).for_each(|_| context().work(1));
            self.stretches[me].set(0);
        });
        context().preempt_enable();
    }

    /// The targets that are in stretches, and these, as far as this CPU knows that they are online.
    pub(super) fn known_stretches(&self, wanted: &CpuMask<C>) -> Vec<(usize, u64)> {
        let in_stretch = |cpu: &usize| self.online[*cpu].get() && self.stretches[*cpu].get() != 0;
        let mut targets = self.indexes(wanted);
        targets.retain(in_stretch);
        if targets.is_empty() {
            return Vec::new();
        }
        // Of a set of several words, which are read one after the other, what a later one teaches does not make an earlier one newer.
        let known_before = (C::CPUS > u64::BITS as usize).then(|| context().knowledge());
        let ready = self.engine.ready_cpus();
        // One that has seen a CPU online may have seen it before that CPU left and came again: then it has not seen it leave. (It learns of
        // that by acquiring, as it looks; a look that does not acquire would leave this check without targets, and a sight unseen.)
        let known = known_before.unwrap_or_else(|| context().knowledge());
        let is_known = |cpu: usize| known.covers(&self.knew[cpu].borrow());
        targets
            .retain(|&cpu| ready.contains(self.numbers[cpu]) && is_known(cpu) && in_stretch(&cpu));
        let stretch = |cpu: usize| (cpu, self.stretches[cpu].get());
        targets.into_iter().map(stretch).collect()
    }

    /// Kicks and waits: no target is where it was before.
    pub(super) fn kick(&self, wanted: &CpuMask<C>) {
        let known = self.known_stretches(wanted);
        self.engine.control().kick(wanted).wait();
        for (cpu, stretch) in known {
            self.hardware.saw(Sight::KickedOut);
            if self.stretches[cpu].get() == stretch {
                let message = format!("cpu{cpu} is still where it was before it was kicked");
                context().fail(FailureKind::EarlyReturn, message);
            }
        }
    }
}
