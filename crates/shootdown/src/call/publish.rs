//! The initiator's half of a call: filling a slot, announcing it, and interrupting its targets.

use crate::call::{FIRST_ONLY, FreeSlot, Kind, Number, Request, RequestRef, Slot};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::trace::TraceEvent;
use crate::watchdog::{Entry, Stall, Watch};

/// Requests of others that a CPU has served since its own last one: with so many it takes it that many call at once. Then lines
/// that are asked for early are gone before they are written, and calls find no room in a ring.
const STORM: u64 = 3;

/// Requests for which a CPU leaves rings alone after it has found one full.
const RING_REST: u64 = 16;

/// How many inboxes are asked for before the first is written: as many cache-line requests as a core keeps
/// under way at least (ten line-fill buffers on x86 since Nehalem, one of them for the slot).
const PREFETCH_AHEAD: usize = 8;

/// Where it matters only for hints: x86, and most others.
const LINE_BYTES: usize = 64;

impl<P: Platform> Shootdown<P> {
    /// Publishes `request` and interrupts its targets: `only` this one, or those in the initiator's set `targets`, which are several or one; all online,
    /// without the initiator.
    // One function, though long: in two halves a call takes three instructions more (`./lab footprint`).
    pub(crate) fn publish(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        only: Option<CpuId>,
    ) -> RequestRef {
        let here = slot.here;
        let only = only.or_else(|| here.targets.only());
        let named = if only.is_some() {
            1
        } else {
            here.targets.len()
        };
        let is_storm = here.served.get() >= STORM;
        here.served.set(0);
        let policy = self.policy();
        let uses_rings = Self::HAS_RINGS
            && policy.broadcasts_to(named)
            && (kind.has(Kind::FLUSH) || !is_storm)
            && !Self::rests_from_rings(here, kind);
        let prefetches = Self::prefetches(policy);
        let (number, ipis) = match only {
            Some(target) if !uses_rings => {
                let inbox = &self.state(target).inbox;
                let words = core::iter::once((P::Cpus::group(target), P::Cpus::bit(target)));
                if prefetches {
                    self.prefetch_slot(&here.slots[slot.index], words.clone());
                    inbox.prefetch(here.cpu, |line| self.platform.prefetch_write(line));
                }
                let number = self.fill(slot, kind.with(Kind::TO_ONE), request, words);
                let must_send = inbox.add(here.cpu, kind.has(Kind::FLUSH));
                (number, u32::from(must_send))
            }
            _ if uses_rings => {
                self.publish_to_set::<true>(slot, kind, request, only, prefetches, is_storm)
            }
            _ => self.publish_to_set::<false>(slot, kind, request, only, prefetches, is_storm),
        };
        let request_ref = slot.request(number);
        let counters = &here.counters;
        if ipis > 0 {
            let set = &here.to_interrupt;
            let sent = match only.or_else(|| set.only()) {
                Some(one) => self.platform.send_ipi(one),
                // SAFETY: 1. we are the initiator, and interrupts are off. The set is not changed before this returns.
                None => self.platform.send_ipi_mask(unsafe { set.as_set() }),
            };
            // A failing backend is a retry, never a loss.
            if sent.is_err() {
                self.interrupt_later(here, only, |waited_ns| {
                    self.stall_of(request_ref, waited_ns)
                });
            }
            counters.ipis_sent.add(u64::from(ipis));
        }
        // Behind the interrupts, for which the stores before them have to be done.
        counters.requests_published.add(1);
        counters.ipis_avoided.add((named - ipis as usize) as u64);
        self.platform.on_trace(TraceEvent::Submitted {
            cpu: here.cpu,
            targets: named as u32,
            ipis,
        });
        request_ref
    }

    /// Counts one more request of a CPU that leaves rings alone; false if it does not. So does each call that may be given up: its entry would stay.
    fn rests_from_rings(here: Here<'_, P>, kind: Kind) -> bool {
        let rest = here.ring_rest.get();
        here.ring_rest.set(rest.saturating_sub(1));
        rest > 0 || kind.is_revocable()
    }

    /// Publishes a request to the initiator's set `targets`, and puts into its set `to_interrupt` those that must be interrupted; returns how many.
    /// A `BROADCAST` is announced in rings, and in the inboxes of those whose ring is full.
    #[inline(never)]
    fn publish_to_set<const BROADCAST: bool>(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        only: Option<CpuId>,
        prefetches: bool,
        is_storm: bool,
    ) -> (Number, u32) {
        let here = slot.here;
        if let Some(only) = only {
            here.targets.clear();
            here.targets.add(only);
        }
        let cell = &here.slots[slot.index];
        let (first, published) = match BROADCAST {
            true => (CpuId::from_index(0), kind.with(Kind::BROADCAST)),
            false => (here.cpu, kind),
        };
        let words = here.targets.groups_from(first);
        if prefetches {
            self.prefetch_slot(cell, words.clone());
            let prefetch = |line| self.platform.prefetch_write(line);
            if BROADCAST {
                for (group, word) in words.clone() {
                    self.rings()[group].prefetch(word, prefetch);
                }
            } else if !is_storm {
                for target in here.targets.iter_from(here.cpu).take(PREFETCH_AHEAD) {
                    self.state(target).inbox.prefetch(here.cpu, prefetch);
                }
            }
        }
        let number = self.fill(slot, published, request, words.clone());
        here.to_interrupt.clear();
        let mut ipis = 0;
        for (group, word) in words {
            let is_done = |other| self.is_done(other);
            if BROADCAST && self.rings()[group].announce(slot.request(number), word, is_done) {
                here.to_interrupt.set_group(group, word);
                ipis += word.count_ones();
                continue;
            }
            if BROADCAST {
                here.counters.broadcasts_full.add(1);
                here.ring_rest.set(RING_REST);
                cell.leave_ring(group);
            }
            ipis += self.add_to_inboxes(here, group, word, kind);
        }
        if BROADCAST {
            here.counters.broadcasts_published.add(1);
        }
        (number, ipis)
    }

    /// Writes the request into its slot, for the targets in `words`, by group: from here on they may find it.
    #[inline]
    fn fill(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        words: impl Iterator<Item = (usize, u64)> + Clone,
    ) -> Number {
        let here = slot.here;
        here.activity.wants(slot.index, Entry::of(&request));
        // Flushes are served before all functions, in any order.
        let now_ns = (!kind.has(Kind::FLUSH)).then(|| self.platform.now_ns());
        // The first slot's header says which others are in use.
        let slots = &here.slots;
        let in_use = match slot.index {
            // None was filled since this one was filled last.
            0 if slots[0].slots_in_use() == FIRST_ONLY => 0,
            0 => {
                let others = slots.iter().enumerate().skip(1);
                let in_use = others.filter(|(_, other)| !other.is_free());
                in_use.fold(0, |all, (index, _)| all | 1 << index)
            }
            other => {
                slots[0].note_other(other);
                0
            }
        };
        // SAFETY: 1. `FreeSlot` holds interrupts off on its CPU since it saw the slot free.
        unsafe { slots[slot.index].publish(kind, request, words, now_ns, in_use) }
    }

    /// Announces a published slot in the inboxes of the targets `word` of one group, and puts into the initiator's set `to_interrupt` those that no
    /// interrupt is on its way to (I7); returns how many. Interrupts are off.
    fn add_to_inboxes(&self, here: Here<'_, P>, group: usize, word: u64, kind: Kind) -> u32 {
        let mut quiet = word;
        for lane in ones_from(word, P::Cpus::bit(here.cpu) - 1) {
            let target = self.state(P::Cpus::cpu(group, lane));
            if !target.inbox.add(here.cpu, kind.has(Kind::FLUSH)) {
                quiet &= !(1 << lane);
            }
        }
        here.to_interrupt.set_group(group, quiet);
        quiet.count_ones()
    }

    /// Goes on after a refusal, one by one, so that nobody is interrupted again while others wait; false if none is left to be interrupted. Meanwhile
    /// this CPU serves flushes, and the watchdog looks, for which `stall` describes the wait.
    #[cold]
    pub(super) fn interrupt_later(
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

    /// Sends the engine's interrupt to `target`, another CPU. Interrupts are off.
    #[cold]
    pub(crate) fn interrupt_one(&self, here: Here<'_, P>, target: CpuId) {
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

    /// Whether hints are worth giving; a model checker has no caches, and fewer steps are quicker to explore.
    #[inline]
    pub(crate) fn prefetches(policy: Policy) -> bool {
        !cfg!(loom) && policy.prefetches()
    }

    /// Asks for the lines of a slot that publishing to these targets writes: it was written last by one that acknowledged.
    #[inline]
    fn prefetch_slot(&self, slot: &Slot<P::Cpus>, words: impl Iterator<Item = (usize, u64)>) {
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
}
