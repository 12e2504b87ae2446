//! The initiator's half of a call: filling a slot, and interrupting its targets.

use crate::call::{FreeSlot, Kind, OtherSlots, Request, RequestRef};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::{IpiRefused, Platform};
use crate::trace::TraceEvent;
use crate::watchdog::{Entry, Stall, Watch};

/// Requests of others that a CPU has served since its own last one: with so many it takes it that many call at once. Then lines
/// that are asked for early are gone before they are written, and calls find no room in a ring.
const STORM: u64 = 3;

/// How many inboxes are asked for before the first is written: as many cache-line requests as a core keeps
/// under way at least (ten line-fill buffers on x86 since Nehalem, one of them for the slot).
const PREFETCH_AHEAD: usize = 8;

/// Whom a request names, all online, without its initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Targets {
    One(CpuId),
    /// Those in the initiator's set `targets`, which are several or one.
    OwnSet,
}

impl<P: Platform> Shootdown<P> {
    /// Publishes `request` to `targets` and interrupts them.
    // One function, though long: in two halves a call takes three instructions more (`./lab footprint`).
    pub(crate) fn publish(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        targets: Targets,
    ) -> RequestRef {
        let here = slot.here;
        let (targets, named) = match targets {
            Targets::One(_) => (targets, 1),
            Targets::OwnSet => match here.targets.only() {
                Some(only) => (Targets::One(only), 1),
                None => (targets, here.targets.len()),
            },
        };
        let is_storm = here.served.get() >= STORM;
        here.served.set(0);
        let policy = self.policy();
        let uses_rings =
            Self::HAS_RINGS && policy.broadcasts_to(named) && (kind.is_flush() || !is_storm);
        if uses_rings && !Self::rests_from_rings(here) {
            return self.publish_broadcast(slot, kind.broadcast(), request, targets, named);
        }
        let prefetches = Self::prefetches(policy);
        let cell = &here.slots[slot.index];
        let (request_ref, only, ipis) = match targets {
            Targets::One(target) => {
                let inbox = &self.state(target).inbox;
                let (group, bit) = (P::Cpus::group(target), P::Cpus::bit(target));
                let words = core::iter::once((group, bit));
                if prefetches {
                    self.prefetch_slot(cell, words.clone());
                    self.prefetch_inbox(inbox, here.cpu);
                }
                let request_ref = self.fill(slot, kind.to_one(), request, words);
                let must_send = inbox.add(here.cpu, kind.is_flush());
                (request_ref, Some(target), u32::from(must_send))
            }
            Targets::OwnSet => {
                let words = here.targets.groups_from(here.cpu);
                if prefetches {
                    self.prefetch_slot(cell, words.clone());
                }
                if prefetches && !is_storm {
                    for target in here.targets.iter_from(here.cpu).take(PREFETCH_AHEAD) {
                        self.prefetch_inbox(&self.state(target).inbox, here.cpu);
                    }
                }
                let request_ref = self.fill(slot, kind, request, words);
                (request_ref, None, self.add_to_inboxes(here, kind))
            }
        };
        self.finish(here, request_ref, only, named, ipis as usize);
        request_ref
    }

    /// Writes the request into its slot, for the targets in `words`, by group: from here on they may find it.
    #[inline]
    pub(crate) fn fill(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        words: impl Iterator<Item = (usize, u64)> + Clone,
    ) -> RequestRef {
        let here = slot.here;
        let wanted = request.function().map_or(Entry::FLUSH, Entry::function);
        here.activity.wants(slot.index, wanted);
        // Flushes are served before all functions, in any order.
        let now_ns = (!kind.is_flush()).then(|| self.platform.now_ns());
        // SAFETY: 1. `FreeSlot` holds interrupts off on its CPU since it saw the slot free.
        let number = unsafe {
            here.slots[slot.index].publish(kind, request, words, now_ns, Self::others_of(slot))
        };
        RequestRef {
            initiator: here.cpu,
            slot: slot.index,
            number,
        }
    }

    /// What the header of `slot` has to say of the other slots. For the first slot, those that are in use; if it is another,
    /// the first slot's header is told of it.
    #[inline]
    fn others_of(slot: &FreeSlot<'_, P>) -> OtherSlots {
        let slots = &slot.here.slots;
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

    /// Announces a published slot in the inboxes of the initiator's set `targets`, and puts into its set `to_interrupt` those that no
    /// interrupt is on its way to (I7); returns how many. Interrupts are off.
    fn add_to_inboxes(&self, here: Here<'_, P>, kind: Kind) -> u32 {
        here.to_interrupt.clear();
        let groups = here.targets.groups_from(here.cpu);
        groups.fold(0, |ipis, (group, word)| {
            ipis + self.add_group_to_inboxes(here, group, word, kind)
        })
    }

    /// The same for the targets `word` of one group.
    pub(crate) fn add_group_to_inboxes(
        &self,
        here: Here<'_, P>,
        group: usize,
        word: u64,
        kind: Kind,
    ) -> u32 {
        let mut quiet = word;
        for lane in ones_from(word, P::Cpus::bit(here.cpu) - 1) {
            let target = self.state(P::Cpus::cpu(group, lane));
            if !target.inbox.add(here.cpu, kind.is_flush()) {
                quiet &= !(1 << lane);
            }
        }
        here.to_interrupt.set_group(group, quiet);
        quiet.count_ones()
    }

    /// Counts a published request and interrupts those of its `named` targets that need it: `only` this one, or those in the initiator's set `to_interrupt`; `ipis`
    /// of them. Interrupts are off.
    #[inline]
    pub(crate) fn finish(
        &self,
        here: Here<'_, P>,
        request: RequestRef,
        only: Option<CpuId>,
        named: usize,
        ipis: usize,
    ) {
        let counters = &here.counters;
        counters.requests_published.add(1);
        counters.ipis_avoided.add((named - ipis) as u64);
        if ipis > 0 {
            self.interrupt(here, request, only);
            counters.ipis_sent.add(ipis as u64);
        }
        self.platform.on_trace(TraceEvent::Submitted {
            cpu: here.cpu,
            targets: named as u32,
            ipis: ipis as u32,
        });
    }

    /// Sends the interrupt until the platform takes it: a failing backend is a retry, never a loss.
    #[inline]
    fn interrupt(&self, here: Here<'_, P>, request: RequestRef, only: Option<CpuId>) {
        if self.send(here, only).is_err() {
            self.interrupt_later(here, only, |waited_ns| self.stall_of(request, waited_ns));
        }
    }

    /// Goes on after a refusal, one by one, so that nobody is interrupted again while others wait; false if none is left to be interrupted. Meanwhile
    /// this CPU serves flushes, and the watchdog looks, for which `stall` describes the wait.
    #[cold]
    fn interrupt_later(
        &self,
        here: Here<'_, P>,
        only: Option<CpuId>,
        stall: impl Fn(u64) -> Option<Stall>,
    ) -> bool {
        let left = &here.to_interrupt;
        if let Some(only) = only {
            left.clear();
            left.add(only);
        }
        let (mut watch, refused) = (Watch::default(), &here.counters.ipis_refused);
        refused.add(1);
        loop {
            self.serve_flushes(here);
            // Those that have left, to which this CPU may just have answered, serve what they find before they are gone, and the platform may refuse
            // interrupts to them for ever.
            left.retain(|cpu| self.is_target(cpu));
            if left.is_empty() {
                return false;
            }
            self.platform.relax();
            self.watch_wait(&mut watch, &stall);
            left.retain(|cpu| {
                let sent = self.platform.send_ipi(cpu);
                sent.inspect_err(|_| refused.add(1)).is_err()
            });
            if left.is_empty() {
                return true;
            }
        }
    }

    /// Asks the platform once for the interrupts.
    #[inline]
    fn send(&self, here: Here<'_, P>, only: Option<CpuId>) -> Result<(), IpiRefused> {
        let set = &here.to_interrupt;
        if let Some(only) = only.or_else(|| set.only()) {
            return self.platform.send_ipi(only);
        }
        // SAFETY: 1. we are the initiator, and interrupts are off. The set is not changed before this returns.
        let set = unsafe { set.as_set() };
        self.platform.send_ipi_mask(set)
    }

    /// Sends the engine's interrupt to `target`, which may be this CPU. Interrupts are off.
    #[cold]
    pub(crate) fn interrupt_one(&self, here: Here<'_, P>, target: CpuId) {
        if target == here.cpu {
            self.interrupt_self(here);
            return;
        }
        let is_sent = self.platform.send_ipi(target).is_ok()
            || self.interrupt_later(here, Some(target), |waited_ns| {
                Some(self.refusal(target, waited_ns))
            });
        here.counters.ipis_sent.add(u64::from(is_sent));
    }

    /// Has this CPU look again in another interrupt. Interrupts are off, so nothing may spin for it: if the platform refuses, the next handler
    /// finds what it was for, and whoever polls, or [looks](crate::watch::Watcher::look), asks once more. Whether it was accepted.
    #[cold]
    #[inline(never)]
    pub(crate) fn interrupt_self(&self, here: Here<'_, P>) -> bool {
        let owes_since = &here.owes_interrupt_since;
        if self.platform.send_ipi(here.cpu).is_ok() {
            owes_since.set(0);
            here.counters.ipis_sent.add(1);
            return true;
        }
        here.counters.ipis_refused.add(1);
        if owes_since.get() == 0 {
            owes_since.set(self.platform.now_ns().max(1));
        }
        // So that `poll` comes here.
        here.inbox.hint();
        false
    }
}
