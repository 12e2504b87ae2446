//! Broadcasts, and asking for the cache lines that an initiator is about to write.

use crate::call::{FreeSlot, Kind, Request, RequestRef, Slot, Targets};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::own_set::OwnSet;
use crate::platform::Platform;

/// How many inboxes ahead of the one being written are asked for: as many cache-line requests as a core keeps
/// under way at least (ten line-fill buffers on x86 since Nehalem, one of them for the slot).
const PREFETCH_AHEAD: usize = 8;

/// Where it matters only for hints: x86, and most others.
const LINE_BYTES: usize = 64;

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Publishes a request to so many targets that it is announced in their rings, and interrupts all of them.
    #[inline(never)]
    pub(crate) fn publish_broadcast(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        (targets, named): (Targets, usize),
    ) -> RequestRef {
        let set = &self.state(slot.initiator).targets;
        if let Targets::One(target) = targets {
            set.clear();
            set.add(target);
        }
        if self.prefetches() {
            self.prefetch_slot(&self.state(slot.initiator).slots[slot.index], set);
            self.prefetch_rings(set);
        }
        let request_ref = self.fill(slot, kind, request, Targets::OwnSet);
        self.announce(request_ref, kind);
        self.finish(request_ref, Targets::OwnSet, (named, set.len()));
        request_ref
    }

    /// Announces a published request in the rings of its targets, and in the inboxes of those whose ring is full; leaves in the
    /// initiator's set `targets` those that must be interrupted. Interrupts are off.
    fn announce(&self, request: RequestRef, kind: Kind) {
        let RequestRef {
            initiator,
            slot,
            number,
        } = request;
        let is_done = |(initiator, slot), number| {
            self.is_done(RequestRef {
                initiator,
                slot,
                number,
            })
        };
        let state = self.state(initiator);
        let leaf_cpus = <Cpus<N> as Capacity>::LEAF_CPUS;
        for (group, word) in state.targets.groups_with_members() {
            let ring = &self.rings()[group];
            if !ring.announce((initiator, slot), number, (word, leaf_cpus), is_done) {
                state.counters.broadcasts_full.add(1);
                state.slots[slot].leave_ring(group);
                self.add_group_to_inboxes(initiator, (group, word), kind);
            }
        }
        state.counters.broadcasts_published.add(1);
    }

    /// Announces a published slot in the inboxes of a group's CPUs, and leaves in the set `targets` those that must be
    /// interrupted.
    fn add_group_to_inboxes(&self, initiator: CpuId, (group, word): (usize, u64), kind: Kind) {
        let (mut left, mut quiet) = (word, 0);
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let target = <Cpus<N> as Capacity>::cpu(group, lane);
            if self.state(target).inbox.add(initiator, kind.is_flush()) {
                quiet |= 1 << lane;
            }
        }
        self.state(initiator).targets.set_group(group, quiet);
    }

    /// Whether hints are worth giving; a model checker has no caches, and fewer steps are quicker to explore.
    #[inline]
    pub(crate) fn prefetches(&self) -> bool {
        !cfg!(loom) && self.policy().prefetches()
    }

    /// Asks for the lines that a request by the inboxes writes. The slot was written last by a target that acknowledged, each
    /// inbox by its CPU: they are fetched side by side, not one after the other.
    #[inline]
    pub(crate) fn prefetch_for(&self, slot: &FreeSlot<'_, P>, targets: Targets) {
        if !self.prefetches() {
            return;
        }
        let state = self.state(slot.initiator);
        let cell = &state.slots[slot.index];
        match targets {
            Targets::One(target) => {
                self.platform
                    .prefetch_write(core::ptr::from_ref(cell).addr());
                if <Cpus<N> as Capacity>::IS_WIDE {
                    self.platform.prefetch_write(cell.line_of(target));
                }
                self.prefetch_inbox(target, slot.initiator);
            }
            Targets::OwnSet => {
                self.prefetch_slot(cell, &state.targets);
                for target in state.targets.iter().take(PREFETCH_AHEAD) {
                    self.prefetch_inbox(target, slot.initiator);
                }
            }
        }
    }

    /// The targets whose inboxes are asked for while those before them are written; `None` where all were asked for, or none
    /// are.
    pub(crate) fn ahead_of<'a>(
        &self,
        targets: &'a OwnSet<N>,
    ) -> Option<impl Iterator<Item = CpuId> + use<'a, P, N>> {
        if !self.prefetches() {
            return None;
        }
        let mut ahead = targets.iter();
        ahead.nth(PREFETCH_AHEAD - 1).map(|_| ahead)
    }

    /// Asks for the lines of the rings that a broadcast to `targets` writes.
    fn prefetch_rings(&self, targets: &OwnSet<N>) {
        let leaf_cpus = <Cpus<N> as Capacity>::LEAF_CPUS;
        for (group, word) in targets.groups_with_members() {
            self.rings()[group].prefetch((word, leaf_cpus), |line| {
                self.platform.prefetch_write(line);
            });
        }
    }

    /// Asks for the lines of a slot that publishing to `targets` writes.
    fn prefetch_slot(&self, slot: &Slot<N>, targets: &OwnSet<N>) {
        self.platform
            .prefetch_write(core::ptr::from_ref(slot).addr());
        if !<Cpus<N> as Capacity>::IS_WIDE {
            return;
        }
        let mut last = 0;
        for (group, _) in targets.groups_with_members() {
            let word = slot.line_of(<Cpus<N> as Capacity>::cpu(group, 0));
            if word / LINE_BYTES != last {
                last = word / LINE_BYTES;
                self.platform.prefetch_write(word);
            }
        }
    }

    /// Asks for the lines of an inbox that announcing `initiator` writes.
    #[inline]
    pub(crate) fn prefetch_inbox(&self, target: CpuId, initiator: CpuId) {
        let (doorbell, bit) = self.state(target).inbox.lines_of(initiator);
        self.platform.prefetch_write(doorbell);
        if let Some(bit) = bit {
            self.platform.prefetch_write(bit);
        }
    }
}
