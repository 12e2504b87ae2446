//! A call that waits for nothing, and is given up if its target does not come.
//!
//! It goes to one CPU, by the inbox. Beside its slot stands a word that says whether it has begun or was given up. Its target changes that before it reads the contents, who
//! gives up before it takes the target's bit out of the pending set: so one exchange decides, and who has won it ends the request. Whatever the target still has of it, in its inbox or
//! among those that wait for their turn, leads to a slot in which it finds nothing, or another request that is announced anew.

use core::fmt;

use crate::call::function::carrying;
use crate::call::{Answer, CallTicket, Kind, RequestRef, WaitsFor};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::CpuControl;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering, PlainCell, const_fn};
use crate::tlb::FlushRequest;

/// Why [`try_submit`](CpuControl::try_submit) has not sent a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitRefused {
    /// The target is not online.
    NotReady,
    /// The target is this CPU.
    ThisCpu,
    /// Every request slot of this CPU that functions may use is taken; or this CPU is not online, and another one is going offline, or is not online
    /// and publishes too.
    Busy,
}

impl fmt::Display for SubmitRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "the target is not online: call a CPU of ready_cpus",
            Self::ThisCpu => "the target is this CPU: call the function, or post it",
            Self::Busy => "no request slot of this CPU is free, or a CPU is leaving: try again later, or give a call up",
        })
    }
}

impl core::error::Error for SubmitRefused {}

/// What lies beside a slot.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The description of a flush that is passed by pointer ([`Policy::BEFORE`](crate::Policy::BEFORE)).
    pub(crate) flush: PlainCell<FlushRequest>,
    /// What became of the last call that may be given up.
    fate: Fate,
}

impl Beside {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                flush: PlainCell::new(FlushRequest::NONE),
                fate: Fate(AtomicU64::new(0)),
            }
        }
    }
}

/// A count of such calls in the slot; in the last two bits whether the last one has begun or was given up. It never has a value twice, so an exchange that comes late fails.
#[derive(Debug)]
struct Fate(AtomicU64);

impl Fate {
    /// Its target runs it.
    const BEGUN: u64 = 1;
    /// It runs nowhere.
    const GIVEN_UP: u64 = 2;
    const DECIDED: u64 = Self::BEGUN | Self::GIVEN_UP;

    /// The next call in the slot, which is free, is open.
    fn open(&self) {
        let last = self.0.load(Ordering::Relaxed);
        // ORDERING: Release: who sees that this call is open sees that the one before is over; pairs with `fate_of`.
        self.0.store((last | Self::DECIDED) + 1, Ordering::Release);
    }

    /// Decides the fate of the call of which this was `seen`; false if another has.
    fn decide(&self, seen: u64, how: u64) -> bool {
        // Relaxed, both: the one exchange that succeeds excludes the others. What the call is about was acquired with the pending set, and what follows from the exchange
        // the pending set carries on to who fills the slot next.
        seen & Self::DECIDED == 0
            && (self.0)
                .compare_exchange(seen, seen | how, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Self::DECIDED == Self::GIVEN_UP
    }
}

impl<'a, P: Platform> CpuControl<'a, P> {
    /// Sends a copy of `function`, at most [`PAYLOAD_BYTES`](crate::calls::PAYLOAD_BYTES) large, to `target`, and returns a ticket, whose wait ends when the function has returned there.
    /// Until it begins the call may be [given up](CallTicket::give_up), so a target that keeps interrupts off for ever takes no slot for ever.
    ///
    /// Any context but NMI, also inside a called function and under any lock; never waits, not for a slot either. The ticket does wait when it is dropped: who may not wait gives up, or
    /// forgets it.
    ///
    /// # Errors
    /// [`SubmitRefused`]; nothing was sent. This CPU is refused as a target: it would have to wait for itself.
    ///
    /// # Panics
    /// When this CPU has no [memory](Shootdown::attach).
    pub fn try_submit<F>(
        self,
        target: CpuId,
        function: F,
    ) -> Result<CallTicket<'a, P>, SubmitRefused>
    where
        F: Fn(CpuId) + Copy + Send + 'static,
    {
        let engine = self.0;
        let (irq, here) = engine.stay();
        if target == here.cpu {
            return Err(SubmitRefused::ThisCpu);
        }
        let slot =
            (engine.free_slot_of(irq, here, WaitsFor::Function)).ok_or(SubmitRefused::Busy)?;
        if !engine.is_callable(target) {
            return Err(SubmitRefused::NotReady);
        }
        here.beside[slot.index].0.fate.open();
        let request = carrying::<F, _>(function);
        let published = engine.publish(&slot, Kind::REVOCABLE, request, Some(target));
        Ok(CallTicket {
            engine,
            targets: CpuMask::only(target),
            request: Some(published),
        })
    }
}

impl<P: Platform> CallTicket<'_, P> {
    /// Gives a call up that [`try_submit`](CpuControl::try_submit) has made: its function has not begun, and never will, and its slot is free. Any context but NMI, on any CPU; does not
    /// block.
    ///
    /// # Errors
    /// The ticket, if the function has begun or has returned, or another method has made the call: [wait](Self::wait).
    ///
    /// # Panics
    /// When this CPU has no [memory](Shootdown::attach).
    pub fn give_up(mut self) -> Result<(), Self> {
        let is_given_up = (self.request).is_some_and(|request| {
            let mut targets = self.targets.iter();
            (targets.next()).is_some_and(|target| self.engine.give_up(request, target))
        });
        if !is_given_up {
            return Err(self);
        }
        self.request = None;
        Ok(())
    }
}

impl<P: Platform> Shootdown<P> {
    /// The fate of the call in this slot that names `target` and may be given up, as seen now; none if there is none. If it has ended meanwhile, nobody decides anything by
    /// what was seen.
    fn fate_of(&self, initiator: CpuId, slot: usize, target: CpuId) -> Option<(&Fate, u64)> {
        let state = self.state(initiator);
        let fate = &state.beside[slot].0.fate;
        // ORDERING: Acquire, before the pending set is read: if this is the word of a later call, the bit of the one before is gone; pairs with `open`.
        let seen = fate.0.load(Ordering::Acquire);
        let kind = state.slots[slot].kind_of(target)?;
        kind.is_revocable().then_some((fate, seen))
    }

    /// Has a request to `target` not run there; false if it has begun, or may not be given up.
    fn give_up(&self, request: RequestRef, target: CpuId) -> bool {
        // Interrupts off: who has answered a kick is not between the exchange and the end of the request.
        let (_irq, here) = self.stay();
        let slot = &self.state(request.initiator).slots[request.slot];
        let Some((fate, seen)) = self.fate_of(request.initiator, request.slot, target) else {
            return false;
        };
        if slot.number() != request.number {
            return false;
        }
        if P::CONFIG.has_deaths {
            here.last_answer.set(Answer {
                request,
                group: P::Cpus::group(target),
                is_given_up: true,
            });
        }
        let is_given_up = fate.decide(seen, Fate::GIVEN_UP);
        if is_given_up {
            slot.acknowledge(P::Cpus::group(target), P::Cpus::bit(target));
        }
        is_given_up
    }

    /// Begins a function that was found in a slot of `initiator`, unless it has been given up. (Then another request may have come, which is announced after this.)
    /// Interrupts are off.
    // By words: the address of what was found would keep it in memory for all calls.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_revocable(&self, me: CpuId, initiator: CpuId, slot: usize) -> bool {
        self.fate_of(initiator, slot, me)
            .is_some_and(|(fate, seen)| fate.decide(seen, Fate::BEGUN))
    }

    /// Ends a request in place of a CPU that has died as it gave it up, or before.
    pub(crate) fn complete_given_up(&self, last: RequestRef) {
        let state = self.state(last.initiator);
        let slot = &state.slots[last.slot];
        if slot.is_done(last.number) || !state.beside[last.slot].0.fate.is_given_up() {
            return;
        }
        // Nobody else ends it.
        for group in self.groups() {
            match slot.pending(group) {
                0 => slot.end_group(group, last.number),
                left => slot.acknowledge(group, left),
            }
        }
    }

    /// Whether the request in a slot, which is not free, was given up.
    #[cfg(all(feature = "sim", not(loom)))]
    pub(crate) fn is_given_up(&self, request: RequestRef) -> bool {
        let state = self.state(request.initiator);
        let is_revocable = state.slots[request.slot].kind().is_revocable();
        is_revocable && state.beside[request.slot].0.fate.is_given_up()
    }
}
