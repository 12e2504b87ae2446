//! The initiator's half of a call.

use crate::call::{Kind, Request, RequestRef, SLOTS, Stamp};
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
        let irq = self.irq_guard();
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
        self.forbid_inside_function(class);
        if let Some(slot) = self.try_free_slot(class) {
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

    /// A called function that waited for other functions could wait for one that waits for it.
    fn forbid_inside_function(&self, class: SlotClass) {
        if class == SlotClass::Flush {
            return;
        }
        // Interrupts off: the flag of a CPU that we have just left would be somebody else's.
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        assert!(
            !self.state(me).in_function.get(),
            "{me}: a called function may not call other CPUs and wait: use try_post"
        );
        drop(irq);
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
        if self.prefetches() {
            // The slot was written last by a target that acknowledged, each inbox by its CPU: fetch them side by
            // side, not one after the other.
            self.platform
                .prefetch_write(core::ptr::from_ref(cell).addr());
            for target in targets.iter().take(PREFETCH_AHEAD) {
                self.prefetch_inbox(target);
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
        // SAFETY: `FreeSlot` holds interrupts off on `initiator` since it saw the slot free.
        let sequence = unsafe { cell.publish(kind, request, targets, now) };
        self.kick(initiator, targets);
        RequestRef {
            initiator,
            slot: slot.index,
            sequence,
        }
    }

    /// Announces a published slot in the targets' inboxes, and interrupts those that no interrupt is on its
    /// way to (I7). Interrupts are off.
    fn kick(&self, initiator: CpuId, targets: &CpuMask<N>) {
        let counters = &self.state(initiator).counters;
        let mut quiet = CpuMask::EMPTY;
        let mut named = 0;
        let mut ahead = targets.iter();
        let prefetches = self.prefetches() && ahead.nth(PREFETCH_AHEAD - 1).is_some();
        for target in targets.iter() {
            named += 1;
            if prefetches && let Some(later) = ahead.next() {
                self.prefetch_inbox(later);
            }
            if self.state(target).inbox.add(initiator) {
                quiet.insert(target);
            }
        }
        let ipis = quiet.len() as u64;
        counters.requests_published.add(1);
        counters.ipis_sent.add(ipis);
        counters.ipis_avoided.add(named - ipis);
        if ipis > 0 {
            self.interrupt(initiator, &quiet);
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

    pub(crate) fn prefetch_inbox(&self, target: CpuId) {
        let inbox = core::ptr::from_ref(&self.state(target).inbox);
        self.platform.prefetch_write(inbox.addr());
    }

    /// Sends the interrupt until the platform takes it: a failing backend is a retry, never a loss.
    fn interrupt(&self, initiator: CpuId, targets: &CpuMask<N>) {
        let multicast = self.policy().multicasts() && targets.len() > 1;
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
            self.serve(initiator);
            self.platform.relax();
        }
    }
}
