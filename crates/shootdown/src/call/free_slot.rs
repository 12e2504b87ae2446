//! [`FreeSlot`]: the right to publish one request.
//!
//! An initiator that is not online keeps others from going offline from here until it has published. Those that are online need
//! not: a CPU that leaves kicks them ([`Shootdown::offline`]), and they answer between two requests.

use crate::call::{Number, RequestRef, SLOTS, WaitsFor};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::IrqGuard;
use crate::memory::Here;
use crate::offline::DepartureGuard;
use crate::platform::Platform;
use crate::watchdog::Watch;

impl WaitsFor {
    /// How many slots such a request may use: a function all but the last, which is kept for flushes. So a flush never waits for a slot that
    /// only a called function somewhere can free, and flushes make progress inside called functions too.
    const fn slots(self) -> usize {
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
    /// There is one if the initiator is not online; then what it knew of others before it had the slot may be old.
    pub(crate) departure: Option<DepartureGuard<'a>>,
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
}

impl<P: Platform> Shootdown<P> {
    /// A free slot of whatever CPU this is; `None` when all are busy, and for an initiator that is not online while another CPU goes
    /// offline. Interrupts are off from here on.
    pub(crate) fn try_free_slot(&self, what: WaitsFor) -> Option<FreeSlot<'_, P>> {
        let (irq, here) = self.stay();
        self.free_slot_of(irq, here, what)
    }

    /// The same where interrupts are off already.
    #[inline]
    pub(crate) fn free_slot_of<'a>(
        &'a self,
        irq: IrqGuard<'a, P>,
        here: Here<'a, P>,
        what: WaitsFor,
    ) -> Option<FreeSlot<'a, P>> {
        let departure = self.hold_for_initiator(here.cpu)?;
        let slots = &here.slots[..what.slots()];
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
        // Not by `stay`: that costs a call 5 to 12 instructions (`./lab footprint`).
        let irq = self.irq_guard();
        let here = self.here(&irq);
        forbid_inside_function(here);
        self.forbid_in_walk(here);
        match self.free_slot_of(irq, here, WaitsFor::Function) {
            Some(slot) => slot,
            None => self.wait_for_slot(WaitsFor::Function),
        }
    }

    /// Waits until a slot is free, with interrupts as the caller has them: for a flush serving flushes only, whose end depends on
    /// flushes only; for a function serving all.
    #[cold]
    pub(crate) fn wait_for_slot(&self, what: WaitsFor) -> FreeSlot<'_, P> {
        let mut watch = Watch::default();
        loop {
            if let Some(slot) = self.try_free_slot(what) {
                return slot;
            }
            self.wait_a_turn(what, &mut watch);
        }
    }

    /// One turn of a wait for a slot.
    #[cold]
    pub(crate) fn wait_a_turn(&self, what: WaitsFor, watch: &mut Watch) {
        self.forbid_wait_in_walk();
        if watch.turns == 0 {
            let (_irq, here) = self.stay();
            here.counters.slots_exhausted.add(1);
        }
        self.poll_for(what);
        self.platform.relax();
        // Any of them may end first, so the targets of all are interrupted again.
        self.watch_wait(watch, |waited_ns| {
            let stalls = self.busy_requests(what);
            let stalls = stalls.filter_map(|request| self.stall_of(request, waited_ns));
            stalls.reduce(|first, _| first)
        });
    }

    /// The requests that keep this CPU's slots busy.
    fn busy_requests(&self, what: WaitsFor) -> impl Iterator<Item = RequestRef> {
        let initiator = self.platform.current_cpu();
        let slots = self.state(initiator).slots[..what.slots()].iter();
        let busy = slots.enumerate().filter(|(_, slot)| !slot.is_free());
        busy.map(move |(slot, of_cpu)| RequestRef {
            initiator,
            slot,
            number: of_cpu.number(),
        })
    }
}

/// A called function that waited for other functions could wait for one that waits for it.
#[inline]
pub(super) fn forbid_inside_function<P: Platform>(here: Here<'_, P>) {
    if here.in_function.get() {
        inside_function(here.cpu);
    }
}

#[cold]
fn inside_function(me: CpuId) -> ! {
    panic!("{me}: a called function may not call other CPUs and wait: use try_post");
}
