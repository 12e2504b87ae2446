//! Broadcasts, and asking for the cache lines that an initiator is about to write.

use crate::call::{FreeSlot, Inbox, Kind, Request, RequestRef, Slot, Targets};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::own_set::OwnSet;
use crate::platform::Platform;
use crate::policy::Policy;

/// Requests for which a CPU leaves rings alone after it has found one full.
const RING_REST: u64 = 16;

/// Where it matters only for hints: x86, and most others.
const LINE_BYTES: usize = 64;

impl<P: Platform> Shootdown<P> {
    /// Publishes a request to so many targets that it is announced in their rings, and interrupts all of them.
    #[inline(never)]
    pub(crate) fn publish_broadcast(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        targets: Targets,
        named: usize,
    ) -> RequestRef {
        let here = slot.here;
        let set = &here.targets;
        if let Targets::One(target) = targets {
            set.clear();
            set.add(target);
        }
        if Self::prefetches(self.policy()) {
            self.prefetch_slot(&here.slots[slot.index], set.groups_with_members());
            self.prefetch_rings(set);
        }
        let request_ref = self.fill(slot, kind, request, set.groups_with_members());
        self.announce(here, request_ref, kind);
        self.finish(here, request_ref, None, named, here.to_interrupt.len());
        request_ref
    }

    /// Announces a published request in the rings of its targets, and in the inboxes of those whose ring is full; puts into the
    /// initiator's set `to_interrupt` those that must be interrupted. Interrupts are off.
    fn announce(&self, here: Here<'_, P>, request: RequestRef, kind: Kind) {
        here.to_interrupt.clear();
        let leaf_cpus = P::Cpus::LEAF_CPUS;
        for (group, word) in here.targets.groups_with_members() {
            let ring = &self.rings()[group];
            if !ring.announce(request, word, leaf_cpus, |other| self.is_done(other)) {
                here.counters.broadcasts_full.add(1);
                here.ring_rest.set(RING_REST);
                here.slots[request.slot].leave_ring(group);
                self.add_group_to_inboxes(here, group, word, kind);
            } else {
                here.to_interrupt.set_group(group, word);
            }
        }
        here.counters.broadcasts_published.add(1);
    }

    /// Counts one more request of a CPU that leaves rings alone; false if it does not.
    pub(crate) fn rests_from_rings(here: Here<'_, P>) -> bool {
        let rest = here.ring_rest.get();
        here.ring_rest.set(rest.saturating_sub(1));
        rest > 0
    }

    /// Whether hints are worth giving; a model checker has no caches, and fewer steps are quicker to explore.
    #[inline]
    pub(crate) fn prefetches(policy: Policy) -> bool {
        !cfg!(loom) && policy.prefetches()
    }

    /// Asks for the lines of the rings that a broadcast to `targets` writes.
    fn prefetch_rings(&self, targets: &OwnSet<P::Cpus>) {
        let leaf_cpus = P::Cpus::LEAF_CPUS;
        for (group, word) in targets.groups_with_members() {
            self.rings()[group].prefetch(word, leaf_cpus, |line| {
                self.platform.prefetch_write(line);
            });
        }
    }

    /// Asks for the lines of a slot that publishing to these targets writes: it was written last by one that acknowledged.
    #[inline]
    pub(crate) fn prefetch_slot(
        &self,
        slot: &Slot<P::Cpus>,
        words: impl Iterator<Item = (usize, u64)>,
    ) {
        self.platform
            .prefetch_write(core::ptr::from_ref(slot).addr());
        if !P::Cpus::IS_WIDE {
            return;
        }
        let mut last = 0;
        for (group, _) in words {
            let word = slot.line_of(P::Cpus::cpu(group, 0));
            if word / LINE_BYTES != last {
                last = word / LINE_BYTES;
                self.platform.prefetch_write(word);
            }
        }
    }

    /// Asks for the lines of an inbox that announcing `initiator` writes.
    #[inline]
    pub(crate) fn prefetch_inbox(&self, inbox: &Inbox<P::Cpus>, initiator: CpuId) {
        let (doorbell, bit) = inbox.lines_of(initiator);
        self.platform.prefetch_write(doorbell);
        if let Some(bit) = bit {
            self.platform.prefetch_write(bit);
        }
    }
}
