//! The initiator's half of a call.

use crate::call::{Kind, Next, Others, Request, RequestRef, SLOTS, Slot, Stamp};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::{IrqGuard, Shootdown};
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::trace::TraceEvent;
use crate::watchdog::{Entry, Watch};

/// How many inboxes ahead of the one being written are asked for: as many cache-line requests as a core keeps
/// under way at least (ten line-fill buffers on x86 since Nehalem, one of them for the slot).
const PREFETCH_AHEAD: usize = 8;

/// Where it matters only for hints: x86, and most others.
const LINE_BYTES: usize = 64;

/// Which slots a request may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotClass {
    /// All but the last, which is kept for flushes: a flush never waits for a slot that only a called
    /// function somewhere can free, so flushes make progress inside called functions too.
    Function,
    /// Any.
    Flush,
}

impl SlotClass {
    const fn limit(self) -> usize {
        match self {
            Self::Function => SLOTS - 1,
            Self::Flush => SLOTS,
        }
    }
}

/// A free slot of the running CPU, which stays free while interrupts stay off.
#[derive(Debug)]
pub(crate) struct FreeSlot<'a, P: Platform> {
    pub(crate) initiator: CpuId,
    pub(crate) index: usize,
    _irq: IrqGuard<'a, P>,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// A free slot of whatever CPU this is, or `None` when all are busy. Interrupts are off from here on.
    pub(crate) fn try_free_slot(&self, class: SlotClass) -> Option<FreeSlot<'_, P>> {
        self.free_slot_of(self.irq_guard(), class)
    }

    /// The same where interrupts are off already.
    fn free_slot_of<'a>(
        &'a self,
        irq: IrqGuard<'a, P>,
        class: SlotClass,
    ) -> Option<FreeSlot<'a, P>> {
        let initiator = self.platform.current_cpu();
        let slots = &self.state(initiator).slots[..class.limit()];
        let index = slots.iter().position(|slot| slot.is_free())?;
        Some(FreeSlot {
            initiator,
            index,
            _irq: irq,
        })
    }

    /// Waits for a free slot, with interrupts as the caller had them, serving the own inbox.
    ///
    /// # Panics
    /// For [`SlotClass::Function`] inside a called function.
    pub(crate) fn free_slot(&self, class: SlotClass) -> FreeSlot<'_, P> {
        let irq = self.irq_guard();
        self.forbid_inside_function(class);
        if let Some(slot) = self.free_slot_of(irq, class) {
            return slot;
        }
        let irq = self.irq_guard();
        self.state(self.platform.current_cpu())
            .counters
            .slots_exhausted
            .add(1);
        drop(irq);
        let mut watch = Watch::default();
        loop {
            if let Some(slot) = self.try_free_slot(class) {
                return slot;
            }
            self.poll();
            self.platform.relax();
            self.watch(&mut watch, || self.busy_request(class));
        }
    }

    /// A request that keeps a slot of this CPU busy, for reports.
    fn busy_request(&self, class: SlotClass) -> Option<RequestRef> {
        let initiator = self.platform.current_cpu();
        let slots = &self.state(initiator).slots[..class.limit()];
        let slot = slots.iter().position(|slot| !slot.is_free())?;
        Some(RequestRef {
            initiator,
            slot,
            sequence: slots[slot].sequence(),
        })
    }

    /// A called function that waited for other functions could wait for one that waits for it. Interrupts are off: the flag of a
    /// CPU that we have just left would be somebody else's.
    fn forbid_inside_function(&self, class: SlotClass) {
        if class == SlotClass::Flush {
            return;
        }
        let me = self.platform.current_cpu();
        assert!(
            !self.state(me).in_function.get(),
            "{me}: a called function may not call other CPUs and wait: use try_post"
        );
    }

    /// Publishes `request` to `targets` (not empty, all ready, without this CPU) and interrupts them.
    pub(crate) fn publish(
        &self,
        slot: &FreeSlot<'_, P>,
        kind: Kind,
        request: Request,
        targets: &CpuMask<N>,
    ) -> RequestRef {
        let initiator = slot.initiator;
        let cell = &self.state(initiator).slots[slot.index];
        let named = targets.len();
        let broadcasts = self.broadcasts(named);
        let kind = if broadcasts { kind.broadcast() } else { kind };
        if self.prefetches() {
            // The slot was written last by a target that acknowledged, each inbox by its CPU, the ring by whoever
            // broadcast before: fetch them side by side, not one after the other.
            self.prefetch_slot(cell, targets);
            if broadcasts {
                self.prefetch_rings(targets);
            } else {
                for target in targets.iter().take(PREFETCH_AHEAD) {
                    self.prefetch_inbox(target, initiator);
                }
            }
        }
        let wanted = match kind.is_flush() {
            true => Entry::FLUSH,
            false => Entry::function(request.run),
        };
        self.state(initiator).diary.wants(slot.index, wanted);
        let now = match kind.is_flush() {
            // Flushes are served before all functions, in any order.
            true => Stamp::NONE,
            false => Stamp::at_ns(self.platform.now_ns()),
        };
        let others = self.others_of(slot);
        // SAFETY: `FreeSlot` holds interrupts off on `initiator` since it saw the slot free.
        let sequence = unsafe { cell.publish(kind, request, targets, (now, others)) };
        let request = RequestRef {
            initiator,
            slot: slot.index,
            sequence,
        };
        let quiet = if broadcasts {
            self.announce(request, targets)
        } else {
            self.add_to_inboxes(initiator, targets, kind.is_flush())
        };
        let ipis = match quiet == *targets {
            true => named,
            false => quiet.len(),
        };
        self.kick(initiator, named, &quiet, ipis);
        request
    }

    /// What the header of `slot` has to say of the other slots. For the first slot, those that are in use; if it is another,
    /// the first slot's header is told of it.
    fn others_of(&self, slot: &FreeSlot<'_, P>) -> Others {
        let slots = &self.state(slot.initiator).slots;
        let mut others = Others::NONE;
        if slot.index > 0 {
            slots[0].note_other(slot.index);
            return others;
        }
        for (index, other) in slots.iter().enumerate().skip(1) {
            if !other.is_free() {
                others.add(index);
            }
        }
        others
    }

    /// Whether a request for so many targets is announced in rings.
    fn broadcasts(&self, named: usize) -> bool {
        let from = usize::from(self.policy().broadcasts_from());
        from != 0 && named >= from
    }

    /// Announces a published request in the rings of its targets, and in the inboxes of those whose ring is full; returns whom
    /// to interrupt. Interrupts are off.
    fn announce(&self, request: RequestRef, targets: &CpuMask<N>) -> CpuMask<N> {
        let RequestRef {
            initiator,
            slot,
            sequence,
        } = request;
        let is_done = |(initiator, slot), sequence| {
            self.is_done(RequestRef {
                initiator,
                slot,
                sequence,
            })
        };
        let counters = &self.state(initiator).counters;
        let cell = &self.state(initiator).slots[slot];
        let (mut quiet, mut unheard) = (*targets, CpuMask::EMPTY);
        for (group, word) in targets.words().iter().enumerate() {
            let ring = &self.rings()[group];
            if *word != 0 && !ring.announce((initiator, slot), sequence, *word, is_done) {
                cell.leave_ring(group);
                quiet.words_mut()[group] = 0;
                unheard.words_mut()[group] = *word;
                counters.broadcasts_full.add(1);
            }
        }
        if !unheard.is_empty() {
            quiet.unite(&self.add_to_inboxes(initiator, &unheard, cell.kind().is_flush()));
        }
        counters.broadcasts_published.add(1);
        quiet
    }

    /// Announces a published slot in the targets' inboxes; returns those that no interrupt is on its way to (I7). Interrupts
    /// are off.
    fn add_to_inboxes(&self, initiator: CpuId, targets: &CpuMask<N>, is_flush: bool) -> CpuMask<N> {
        let mut quiet = CpuMask::EMPTY;
        let mut ahead = targets.iter();
        let prefetches = self.prefetches() && ahead.nth(PREFETCH_AHEAD - 1).is_some();
        for target in targets.iter() {
            if prefetches && let Some(later) = ahead.next() {
                self.prefetch_inbox(later, initiator);
            }
            if self.state(target).inbox.add(initiator, is_flush) {
                quiet.insert(target);
            }
        }
        quiet
    }

    /// Interrupts those of a request's `named` targets that need it, `ipis` of them. Interrupts are off.
    fn kick(&self, initiator: CpuId, named: usize, quiet: &CpuMask<N>, ipis: usize) {
        let counters = &self.state(initiator).counters;
        counters.requests_published.add(1);
        counters.ipis_sent.add(ipis as u64);
        counters.ipis_avoided.add((named - ipis) as u64);
        if ipis > 0 {
            self.interrupt(initiator, quiet);
        }
        self.platform.on_trace(TraceEvent::Submitted {
            cpu: initiator,
            targets: named as u32,
            ipis: ipis as u32,
        });
    }

    /// Whether hints are worth giving; a model checker has no caches, and fewer steps are quicker to explore.
    pub(crate) fn prefetches(&self) -> bool {
        !cfg!(loom) && self.policy().prefetches()
    }

    /// Asks for the lines of the rings that a broadcast to `targets` writes.
    fn prefetch_rings(&self, targets: &CpuMask<N>) {
        for (ring, word) in self.rings().iter().zip(targets.words()) {
            if *word != 0 {
                ring.prefetch(*word, |line| self.platform.prefetch_write(line));
            }
        }
    }

    /// Asks for the lines of a slot that publishing to `targets` writes.
    fn prefetch_slot(&self, slot: &Slot<N>, targets: &CpuMask<N>) {
        const LINE_WORDS: usize = LINE_BYTES / 8;
        self.platform
            .prefetch_write(core::ptr::from_ref(slot).addr());
        if <Cpus<N> as Capacity>::WORDS == 1 {
            return;
        }
        for (line, words) in targets.words().chunks(LINE_WORDS).enumerate() {
            if words.iter().any(|word| *word != 0) {
                let first = CpuId::from_index(line * LINE_WORDS * 64);
                self.platform.prefetch_write(slot.line_of(first));
            }
        }
    }

    /// Asks for the lines of an inbox that announcing `initiator` writes.
    pub(crate) fn prefetch_inbox(&self, target: CpuId, initiator: CpuId) {
        let [doorbell, bit] = self.state(target).inbox.lines_of(initiator);
        self.platform.prefetch_write(doorbell);
        if bit / LINE_BYTES != doorbell / LINE_BYTES {
            self.platform.prefetch_write(bit);
        }
    }

    /// Sends the interrupt until the platform takes it: a failing backend is a retry, never a loss.
    fn interrupt(&self, initiator: CpuId, targets: &CpuMask<N>) {
        let multicast = self.policy().multicasts() && targets.has_several();
        let send = || {
            if multicast {
                self.platform.send_ipi_mask(targets.as_set())
            } else {
                targets
                    .iter()
                    .try_for_each(|target| self.platform.send_ipi(target))
            }
        };
        while send().is_err() {
            self.state(initiator).counters.ipis_refused.add(1);
            self.serve(initiator, Next::Leave);
            self.platform.relax();
        }
    }
}
