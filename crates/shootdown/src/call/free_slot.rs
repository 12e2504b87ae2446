//! [`FreeSlot`]: the right to publish one request.
//!
//! An initiator that is not online keeps others from going offline from here until it has published. Those that are online need
//! not: a CPU that leaves kicks them ([`Shootdown::offline`]), and they answer between two requests.

use crate::call::{Number, RequestRef, SLOTS};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::IrqGuard;
use crate::memory::{CpuState, Here};
use crate::offline::DepartureGuard;
use crate::platform::Platform;
use crate::watchdog::Watch;

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
    /// Its initiator.
    pub(crate) here: Here<'a, P>,
    pub(crate) index: usize,
    departure: Option<DepartureGuard<'a>>,
    /// Dropped last.
    _irq: IrqGuard<'a, P>,
}

impl<P: Platform> FreeSlot<'_, P> {
    /// Names the request that was published in it.
    pub(super) fn request(&self, number: Number) -> RequestRef {
        RequestRef {
            initiator: self.here.cpu,
            slot: self.index,
            number,
        }
    }

    /// Whether the initiator is not online, so that what it knew of others before it had the slot may be old.
    #[inline]
    pub(crate) fn was_offline(&self) -> bool {
        self.departure.is_some()
    }
}

/// A wait for a slot.
#[derive(Debug, Default)]
pub(crate) struct SlotWait {
    is_counted: bool,
    watch: Watch,
}

impl<P: Platform> Shootdown<P> {
    /// A free slot of whatever CPU this is; `None` when all are busy, and for an initiator that is not online while another CPU goes
    /// offline. Interrupts are off from here on.
    pub(crate) fn try_free_slot(&self, class: SlotClass) -> Option<FreeSlot<'_, P>> {
        let irq = self.irq_guard();
        let here = self.here(&irq);
        self.free_slot_of(irq, here, class)
    }

    /// The same where interrupts are off already.
    #[inline]
    pub(crate) fn free_slot_of<'a>(
        &'a self,
        irq: IrqGuard<'a, P>,
        here: Here<'a, P>,
        class: SlotClass,
    ) -> Option<FreeSlot<'a, P>> {
        let departure = self.hold_for_initiator(here.cpu)?;
        let slots = &here.slots[..class.limit()];
        let index = slots.iter().position(|slot| slot.is_free())?;
        Some(FreeSlot {
            here,
            index,
            departure,
            _irq: irq,
        })
    }

    /// Waits for a free slot for a function, with interrupts as the caller has them. What this CPU was called for runs meanwhile.
    ///
    /// # Panics
    /// Inside a called function.
    #[inline]
    pub(crate) fn free_slot_for_function(&self) -> FreeSlot<'_, P> {
        let irq = self.irq_guard();
        let here = self.here(&irq);
        forbid_inside_function(here.cpu, here.state);
        match self.free_slot_of(irq, here, SlotClass::Function) {
            Some(slot) => slot,
            None => self.wait_for_slot(SlotClass::Function),
        }
    }

    /// Waits until a slot is free, with interrupts as the caller has them: for a flush serving flushes only, whose end depends on
    /// flushes only; for a function serving all.
    #[cold]
    pub(crate) fn wait_for_slot(&self, class: SlotClass) -> FreeSlot<'_, P> {
        let mut wait = SlotWait::default();
        loop {
            if let Some(slot) = self.try_free_slot(class) {
                return slot;
            }
            self.wait_a_turn(class, &mut wait);
        }
    }

    /// One turn of a wait for a slot.
    #[cold]
    pub(crate) fn wait_a_turn(&self, class: SlotClass, wait: &mut SlotWait) {
        if !wait.is_counted {
            let irq = self.irq_guard();
            self.here(&irq).counters.slots_exhausted.add(1);
            wait.is_counted = true;
        }
        match class {
            SlotClass::Flush => self.poll(),
            SlotClass::Function => self.poll_functions(),
        };
        self.platform.relax();
        self.watch_wait(&mut wait.watch, |waited_ns| {
            self.stall_of(self.busy_request(class)?, waited_ns)
        });
    }

    /// A request that keeps a slot of this CPU busy, for reports.
    fn busy_request(&self, class: SlotClass) -> Option<RequestRef> {
        let initiator = self.platform.current_cpu();
        let slots = &self.state(initiator).slots[..class.limit()];
        let slot = slots.iter().position(|slot| !slot.is_free())?;
        Some(RequestRef {
            initiator,
            slot,
            number: slots[slot].number(),
        })
    }
}

/// A called function that waited for other functions could wait for one that waits for it.
#[inline]
pub(super) fn forbid_inside_function<P: Platform>(cpu: CpuId, state: &CpuState<P>) {
    if state.in_function.get() {
        inside_function(cpu);
    }
}

#[cold]
fn inside_function(me: CpuId) -> ! {
    panic!("{me}: a called function may not call other CPUs and wait: use try_post");
}
