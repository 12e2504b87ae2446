//! Looking for requests: in the slots of initiators that the inbox names, and in the ring. Flushes are served at once. So are
//! functions, as long as they are short; long ones, and those of an initiator that has several requests, are left where they are, and
//! run oldest first: this CPU's bit stays set until it clears it, so they are found again.

use crate::call::ring::MOST_READ;
use crate::call::ring_entry::Announcement;
use crate::call::{Kind, Number, OtherSlots, Place, Slot, Ticket};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::Platform;

/// So many initiators that wait, and so many announcements, are compared with each other by age.
#[cfg(not(loom))]
const COMPARED: usize = 16;
/// Two keep the models small.
#[cfg(loom)]
const COMPARED: usize = 2;

/// That of two requests in a row. A slot is a line, so its address has no such bit.
const SERVED_AGAIN: u64 = 1;

/// What a look serves; the rest is left where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serve {
    /// Flushes.
    Flushes,
    /// Functions too, but for those that wait for their turn.
    Short,
    /// Functions too, whether they wait for their turn or not.
    All,
}

/// A function that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Left {
    place: Place,
    kind: Kind,
    number: Number,
    /// Nothing else of its initiator waits in a slot.
    is_last: bool,
}

impl Left {
    /// The older of two.
    fn older(one: Option<Self>, other: Self) -> Option<Self> {
        match one {
            Some(one) if one.number.is_before(other.number) => Some(one),
            _ => Some(other),
        }
    }
}

impl<P: Platform> Shootdown<P> {
    /// Whether there is a broadcast that this CPU has not read, and that is not known to be a function if those are skipped; a hint.
    #[inline]
    pub(crate) fn is_broadcast_due(&self, me: Here<'_, P>, skip_functions: bool) -> bool {
        if !Self::HAS_RINGS {
            return false;
        }
        #[cfg(loom)]
        if self.ring_of(me.cpu).is_used.get() == 0 {
            return false;
        }
        let next = match skip_functions && me.ring.has_functions() {
            true => me.ring.next_from(me.ring.next(), true),
            false => Some(me.ring.next()),
        };
        next.is_some_and(|next| self.ring_of(me.cpu).is_due(next))
    }

    /// Reads the broadcasts that this CPU has not read: serves the flushes, and the functions where they may run. True if any was
    /// served.
    #[inline]
    pub(super) fn read_ring(&self, me: Here<'_, P>, serve: Serve) -> bool {
        // Where nothing lies at the next ticket, nothing lies further.
        self.is_broadcast_due(me, false) && self.read_tickets(me, serve)
    }

    #[inline(never)]
    fn read_tickets(&self, me: Here<'_, P>, serve: Serve) -> bool {
        let (reader, ring) = (&me.ring, self.ring_of(me.cpu));
        let (mut is_served, mut from, mut pace) = (false, reader.next(), None);
        for _ in 0..MOST_READ {
            let Some(ticket) = reader.next_from(from, serve == Serve::Flushes) else {
                break;
            };
            from = ticket.plus(1);
            match ring.read(ticket, self.seat_of(me.cpu)) {
                Announcement::Nothing => break,
                Announcement::Gone(later) => reader.skip_to(later),
                Announcement::Incomplete => {}
                Announcement::NotOurs => reader.has_read(ticket),
                Announcement::Ours(initiator, slot) => {
                    let place = Place::in_ring(initiator, slot, ticket);
                    let kind = self.slot_at(place).kind();
                    let others = self.state(initiator).slots[0].others();
                    if !Self::is_served_now(me, place, kind, others, serve) {
                        reader.leave(ticket);
                        continue;
                    }
                    // Before it is served: a function that polls reads the ring too.
                    reader.has_read(ticket);
                    // SAFETY: 1. a target reads each ticket once.
                    unsafe { self.serve_one(me, place, kind) };
                    is_served = true;
                    match &mut pace {
                        Some(pace) => self.keep_pace(me, pace),
                        None if serve != Serve::Flushes => pace = Some(self.begin_pace()),
                        None => {}
                    }
                }
            }
        }
        is_served
    }

    /// Serves the flush requests of `initiator`, and its functions where they may run; true if nothing is left of it.
    #[inline]
    pub(super) fn look_at(&self, me: Here<'_, P>, initiator: CpuId, serve: Serve) -> bool {
        let slots = &self.state(initiator).slots;
        if Self::prefetches(self.policy()) {
            // Most requests are in the first slot and are acknowledged at once: fetching its line for
            // writing saves the second transfer that an acknowledgement after a read costs.
            self.platform.prefetch_write(slots[0].line_of(me.cpu));
        }
        let (mut is_all, others) = (true, slots[0].others());
        for slot in others.with_first() {
            let Some(kind) = slots[slot].kind_for(me.cpu) else {
                continue;
            };
            if kind.is_to_one() {
                Self::expect(me, &slots[slot]);
            }
            let place = Place::in_inbox(initiator, slot);
            if Self::is_served_now(me, place, kind, others, serve) {
                // SAFETY: 1. just seen, and not in the ring, where it could be found again.
                unsafe { self.serve_one(me, place, kind) };
            } else {
                is_all = false;
            }
        }
        is_all
    }

    /// What lies in `slot` names this CPU alone: after twice in a row that slot is asked for in the next interrupt.
    #[inline]
    fn expect(me: Here<'_, P>, slot: &Slot<P::Cpus>) {
        let slot = core::ptr::from_ref(slot).addr() as u64;
        let is_again = me.served_slot.get() & !SERVED_AGAIN == slot;
        (me.served_slot).set(slot | if is_again { SERVED_AGAIN } else { 0 });
    }

    /// The slot that is worth asking for before the inbox has been read.
    #[inline]
    pub(super) fn expected_slot(me: Here<'_, P>) -> Option<usize> {
        let slot = me.served_slot.get();
        (slot & SERVED_AGAIN != 0).then_some(slot as usize)
    }

    /// Whether a request is served as it is found. `others` are those of its initiator's slots that may hold requests, too: its functions run
    /// in the order in which they were published.
    #[inline]
    fn is_served_now(
        me: Here<'_, P>,
        place: Place,
        kind: Kind,
        others: OtherSlots,
        serve: Serve,
    ) -> bool {
        let is_alone = || place.slot() == 0 && others == OtherSlots::NONE;
        kind.is_flush()
            || match serve {
                Serve::Flushes => false,
                Serve::Short => is_alone() && !me.is_slow.get(),
                Serve::All => true,
            }
    }

    /// Serves a request.
    ///
    /// # Safety
    /// 1. It names this CPU, which has not acknowledged it.
    #[inline(always)]
    unsafe fn serve_one(&self, me: Here<'_, P>, place: Place, kind: Kind) {
        me.served.set(me.served.get() + 1);
        if kind.is_flush() {
            // SAFETY: duty 1.
            unsafe { self.serve_flush(me, place, kind) };
        } else {
            // SAFETY: duty 1.
            let request = unsafe { self.slot_at(place).contents() };
            self.run_and_acknowledge(me, (place, kind), &request);
        }
    }

    /// Runs the oldest function of those that wait, and those that were left in the ring before `end`; false if there is none.
    pub(super) fn run_oldest(&self, me: Here<'_, P>, end: Ticket) -> bool {
        let oldest = self.oldest_waiting(me);
        let Some(Left {
            place,
            kind,
            is_last,
            ..
        }) = self.oldest_in_ring(me, end, oldest)
        else {
            return false;
        };
        if place.is_in_ring {
            me.ring.has_read(place.ticket);
        } else if is_last {
            // It announces the next one.
            me.waiting.remove(place.initiator());
        }
        // SAFETY: 1. just seen.
        unsafe { self.serve_one(me, place, kind) };
        true
    }

    /// The oldest function of the first initiators that wait. Those that have none do not wait any more.
    fn oldest_waiting(&self, me: Here<'_, P>) -> Option<Left> {
        let (mut oldest, mut compared) = (None, 0);
        for initiator in me.waiting.iter_from(me.cpu) {
            match self.oldest_of(me, initiator) {
                Some(left) => oldest = Left::older(oldest, left),
                None => me.waiting.remove(initiator),
            }
            compared += 1;
            if compared == COMPARED && oldest.is_some() {
                break;
            }
        }
        oldest
    }

    /// The oldest function of `initiator` that is found by the inbox.
    fn oldest_of(&self, me: Here<'_, P>, initiator: CpuId) -> Option<Left> {
        let slots = &self.state(initiator).slots;
        let (mut oldest, mut found) = (None, 0);
        for slot in slots[0].others().with_first() {
            let kind = slots[slot].kind_for(me.cpu);
            // Flushes were served before.
            if let Some(kind) = kind.filter(|kind| !kind.is_flush()) {
                found += 1;
                let left = Left {
                    place: Place::in_inbox(initiator, slot),
                    kind,
                    number: slots[slot].number(),
                    is_last: false,
                };
                oldest = Left::older(oldest, left);
            }
        }
        oldest.map(|left| Left {
            is_last: found == 1,
            ..left
        })
    }

    /// The oldest of `oldest` and the first functions that were left in the ring before `end`.
    fn oldest_in_ring(
        &self,
        me: Here<'_, P>,
        end: Ticket,
        mut oldest: Option<Left>,
    ) -> Option<Left> {
        for ticket in me.ring.left_before(end).take(COMPARED) {
            let read = self.ring_of(me.cpu).read(ticket, self.seat_of(me.cpu));
            // It is ours until it is acknowledged.
            if let Announcement::Ours(initiator, slot) = read {
                let place = Place::in_ring(initiator, slot, ticket);
                let (kind, number) = (self.slot_at(place).kind(), self.slot_at(place).number());
                let left = Left {
                    place,
                    kind,
                    number,
                    is_last: false,
                };
                oldest = Left::older(oldest, left);
            }
        }
        oldest
    }
}
