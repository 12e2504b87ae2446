//! The initiator's half of a call: filling a slot, and interrupting its targets.

use crate::call::{Doorbell, FreeSlot, Kind, OtherSlots, Request, RequestRef};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::CpuState;
use crate::platform::{IpiRefused, Platform};
use crate::trace::TraceEvent;
use crate::watchdog::{Entry, Watch};

/// Requests of others that a CPU has served since its own last one, from which on it takes it that many call at once. Then lines
/// that are asked for early are gone before they are written, and a ring has no room.
const STORM: u64 = 3;

/// How many inboxes ahead of the one being written are asked for: as many cache-line requests as a core keeps
/// under way at least (ten line-fill buffers on x86 since Nehalem, one of them for the slot).
const PREFETCH_AHEAD: usize = 8;

/// Whom a request names, all online, without its initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Targets {
    One(CpuId),
    /// Those in the initiator's set `targets`, which are several or one.
    OwnSet,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Publishes `request` to `targets` and interrupts them.
    pub(crate) fn publish(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        targets: Targets,
    ) -> RequestRef {
        let state = self.state(slot.initiator);
        let (targets, named) = match targets {
            Targets::One(_) => (targets, 1),
            Targets::OwnSet => match state.targets.only() {
                Some(only) => (Targets::One(only), 1),
                None => (targets, state.targets.len()),
            },
        };
        let is_storm = state.served.get() >= STORM;
        state.served.set(0);
        if self.policy().broadcasts_to(named) && !is_storm && self.is_ring_open(state) {
            return self.publish_broadcast(slot, kind.broadcast(), request, (targets, named));
        }
        let ahead = match self.prefetches() && !is_storm {
            true => PREFETCH_AHEAD,
            false => 0,
        };
        self.prefetch_for(slot, targets, ahead);
        let request_ref = self.fill(slot, kind, request, targets);
        let ipis = match targets {
            Targets::One(target) => {
                let must_send = self
                    .state(target)
                    .inbox
                    .add(slot.initiator, kind.is_flush());
                u32::from(must_send)
            }
            Targets::OwnSet => self.add_to_inboxes(state, slot.initiator, kind, ahead),
        };
        self.finish(request_ref, targets, (named, ipis as usize));
        request_ref
    }

    /// Writes the request into its slot: from here on its targets may find it.
    pub(crate) fn fill(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        targets: Targets,
    ) -> RequestRef {
        let state = self.state(slot.initiator);
        let wanted = request.function().map_or(Entry::FLUSH, Entry::function);
        state.activity.wants(slot.index, wanted);
        // Flushes are served before all functions, in any order.
        let now_ns = (!kind.is_flush()).then(|| self.platform.now_ns());
        let order = (now_ns, self.others_of(slot));
        let cell = &state.slots[slot.index];
        let number = match targets {
            Targets::One(target) => {
                let word = (
                    <Cpus<N> as Capacity>::group(target),
                    <Cpus<N> as Capacity>::bit(target),
                );
                // SAFETY: 1. `FreeSlot` holds interrupts off on `initiator` since it saw the slot free.
                unsafe { cell.publish(kind, request, core::iter::once(word), order) }
            }
            Targets::OwnSet => {
                let words = state.targets.groups_with_members();
                // SAFETY: 1. as above.
                unsafe { cell.publish(kind, request, words, order) }
            }
        };
        RequestRef {
            initiator: slot.initiator,
            slot: slot.index,
            number,
        }
    }

    /// What the header of `slot` has to say of the other slots. For the first slot, those that are in use; if it is another,
    /// the first slot's header is told of it.
    fn others_of(&self, slot: &FreeSlot<'_, P>) -> OtherSlots {
        let slots = &self.state(slot.initiator).slots;
        let mut others = OtherSlots::NONE;
        if slot.index > 0 {
            slots[0].note_other(slot.index);
            return others;
        }
        if slots[0].others() == OtherSlots::NONE {
            // None was filled since this one was filled last.
            return others;
        }
        for (index, other) in slots.iter().enumerate().skip(1) {
            if !other.is_free() {
                others.add(index);
            }
        }
        others
    }

    /// Announces a published slot in the inboxes of the initiator's set `targets`, `ahead` of which are asked for already, and leaves
    /// in the set those that no interrupt is on its way to (I7); returns how many. Interrupts are off.
    pub(crate) fn add_to_inboxes(
        &self,
        state: &CpuState<N>,
        initiator: CpuId,
        kind: Kind,
        ahead: usize,
    ) -> u32 {
        let mut ipis = 0;
        let mut later = state.targets.iter_from(initiator).skip(ahead);
        for target in state.targets.iter_from(initiator) {
            if ahead > 0
                && let Some(later) = later.next()
            {
                self.prefetch_inbox(later, initiator);
            }
            match self.state(target).inbox.add(initiator, kind.is_flush()) {
                true => ipis += 1,
                false => state.targets.remove(target),
            }
        }
        ipis
    }

    /// Counts a published request and interrupts those of its `named` targets that need it, `ipis` of them. Interrupts are off.
    pub(crate) fn finish(
        &self,
        request: RequestRef,
        targets: Targets,
        (named, ipis): (usize, usize),
    ) {
        let initiator = request.initiator;
        let counters = &self.state(initiator).counters;
        counters.requests_published.add(1);
        counters.ipis_sent.add(ipis as u64);
        counters.ipis_avoided.add((named - ipis) as u64);
        if ipis > 0 {
            self.interrupt(request, targets);
        }
        self.platform.on_trace(TraceEvent::Submitted {
            cpu: initiator,
            targets: named as u32,
            ipis: ipis as u32,
        });
    }

    /// Sends the interrupt until the platform takes it: a failing backend is a retry, never a loss. Meanwhile this CPU serves
    /// flushes, and the watchdog looks.
    fn interrupt(&self, request: RequestRef, targets: Targets) {
        let initiator = request.initiator;
        let (mut watch, mut next) = (Watch::default(), CpuId::from_index(0));
        while self.send(initiator, targets, &mut next).is_err() {
            self.state(initiator).counters.ipis_refused.add(1);
            self.serve_flushes(initiator);
            if !self.is_any_left(initiator, targets) {
                return;
            }
            self.platform.relax();
            self.watch(&mut watch, |waited_ns| self.stall_of(request, waited_ns));
        }
    }

    /// Forgets targets that have left, to which this CPU may just have answered: they serve what they find before they are gone, and
    /// the platform may refuse interrupts to them for ever. Whether any is left.
    fn is_any_left(&self, initiator: CpuId, targets: Targets) -> bool {
        let set = match targets {
            Targets::One(target) => return self.is_ready(target),
            Targets::OwnSet => &self.state(initiator).targets,
        };
        for gone in set.iter().filter(|cpu| !self.is_ready(*cpu)) {
            set.remove(gone);
        }
        !set.is_empty()
    }

    /// Targets below `next` have been interrupted already, one by one; the first that is refused is the new `next`.
    fn send(&self, initiator: CpuId, targets: Targets, next: &mut CpuId) -> Result<(), IpiRefused> {
        let set = &self.state(initiator).targets;
        let only = match targets {
            Targets::One(target) => Some(target),
            Targets::OwnSet => set.only(),
        };
        if let Some(only) = only {
            return self.platform.send_ipi(only);
        }
        if !self.policy().multicasts() {
            let from = *next;
            return set.iter().filter(|cpu| *cpu >= from).try_for_each(|cpu| {
                let sent = self.platform.send_ipi(cpu);
                sent.inspect_err(|_| *next = cpu)
            });
        }
        // SAFETY: 1. we are the initiator, and interrupts are off. The set is not changed before this returns.
        let set = unsafe { set.as_set() };
        self.platform.send_ipi_mask(set)
    }

    /// Has this CPU take the engine's interrupt once more; not before it has interrupts on.
    pub(crate) fn interrupt_myself(&self, me: CpuId) {
        let counters = &self.state(me).counters;
        let mut watch = Watch::default();
        while self.platform.send_ipi(me).is_err() {
            counters.ipis_refused.add(1);
            self.serve_flushes(me);
            self.platform.relax();
            self.watch(&mut watch, |waited_ns| Some(self.refusal(me, waited_ns)));
        }
        counters.ipis_sent.add(1);
    }

    /// How this CPU has left its doorbell.
    #[inline]
    pub(crate) fn doorbell(&self, me: CpuId) -> Doorbell {
        match self.state(me).inbox.is_held(me) {
            true => Doorbell::Held,
            false => Doorbell::Silent,
        }
    }
}
