//! Broadcasts, and asking for the cache lines that an initiator is about to write.

use crate::call::{FreeSlot, Kind, Request, RequestRef, Slot, Targets};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::CpuState;
use crate::own_set::{OwnSet, ones_from};
use crate::platform::Platform;

/// Requests for which a CPU leaves rings alone after it has found one full.
const RING_REST: u64 = 16;

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
                state.ring_rest.set(RING_REST);
                state.slots[slot].leave_ring(group);
                self.add_group_to_inboxes(initiator, (group, word), kind);
            }
        }
        state.counters.broadcasts_published.add(1);
    }

    /// Whether broadcasts of this CPU go by rings: not for a while after one was full.
    pub(crate) fn is_ring_open(&self, state: &CpuState<N>) -> bool {
        let rest = state.ring_rest.get();
        state.ring_rest.set(rest.saturating_sub(1));
        rest == 0
    }

    /// Announces a published slot in the inboxes of a group's CPUs, and leaves in the set `targets` those that must be
    /// interrupted.
    fn add_group_to_inboxes(&self, initiator: CpuId, (group, word): (usize, u64), kind: Kind) {
        let mut quiet = 0;
        for lane in ones_from(word, <Cpus<N> as Capacity>::bit(initiator) - 1) {
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

    /// Asks for the lines that a request by the inboxes writes, of so many inboxes. The slot was written last by a target that acknowledged, each
    /// inbox by its CPU: they are fetched side by side, not one after the other.
    #[inline]
    pub(crate) fn prefetch_for(&self, slot: &FreeSlot<'_, P>, targets: Targets, ahead: usize) {
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
                for target in state.targets.iter_from(slot.initiator).take(ahead) {
                    self.prefetch_inbox(target, slot.initiator);
                }
            }
        }
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
