//! Looking for requests: in the slots of initiators that the inbox names, and in the ring. Flushes are served at once. So are
//! functions, as long as they are short; long ones, and those that may be merged, go into the backlog.

use crate::call::backlog::Found;
use crate::call::ring::{Announcement, MOST_READ};
use crate::call::{Kind, OtherSlots, Place};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;

/// What becomes of functions that a look finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Functions {
    /// They are left where they are.
    Leave,
    /// They run, now or from the backlog.
    Run,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Whether there is a broadcast that this CPU has not read; a hint.
    #[inline]
    pub(crate) fn is_broadcast_due(&self, me: CpuId) -> bool {
        self.is_due(me, false)
    }

    /// The same, without those that are known to be functions.
    #[inline]
    pub(crate) fn is_broadcast_flush_due(&self, me: CpuId) -> bool {
        self.is_due(me, true)
    }

    #[inline]
    fn is_due(&self, me: CpuId, skip_functions: bool) -> bool {
        #[cfg(loom)]
        if self.ring_of(me).is_used.get() == 0 {
            return false;
        }
        let reader = &self.state(me).ring;
        let next = match skip_functions && reader.has_functions() {
            true => reader.next_from(reader.next(), true),
            false => Some(reader.next()),
        };
        next.is_some_and(|next| self.ring_of(me).is_due(next))
    }

    /// Reads the broadcasts that this CPU has not read: serves the flushes, and the functions where they may run, as far as the
    /// backlog has room. True if there were any.
    pub(super) fn read_ring(&self, me: CpuId, functions: Functions) -> bool {
        let (reader, ring) = (&self.state(me).ring, self.ring_of(me));
        #[cfg(loom)]
        if ring.is_used.get() == 0 {
            return false;
        }
        let (mut is_named, mut from, mut pace) = (false, reader.next(), None);
        let is_full = !self.may_take(me, functions);
        for _ in 0..MOST_READ {
            let Some(ticket) = reader.next_from(from, is_full) else {
                break;
            };
            from = ticket.plus(1);
            match ring.read(ticket, self.seat_of(me)) {
                Announcement::Nothing => break,
                Announcement::Gone(later) => reader.skip_to(later),
                Announcement::Incomplete => {}
                Announcement::NotOurs => reader.has_read(ticket),
                Announcement::Ours(initiator, slot) => {
                    let place = Place::in_ring(initiator, slot, ticket);
                    let kind = self.slot_at(place).kind();
                    if !kind.is_flush() && !self.may_take(me, functions) {
                        reader.leave(ticket);
                        continue;
                    }
                    // Before it is served: a function that polls reads the ring too.
                    reader.has_read(ticket);
                    // SAFETY: 1. a target reads each ticket once.
                    unsafe { self.serve_or_keep(me, place, kind) };
                    is_named = true;
                    match &mut pace {
                        Some(pace) => self.keep_pace(me, pace),
                        None if functions == Functions::Run => pace = Some(self.begin_pace()),
                        None => {}
                    }
                }
            }
        }
        is_named
    }

    /// Serves the flush requests of `initiator`, and its functions where they may run; true if nothing is left of it.
    #[inline]
    pub(super) fn look_at(&self, me: CpuId, initiator: CpuId, functions: Functions) -> bool {
        let slots = &self.state(initiator).slots;
        if self.prefetches() {
            // Most requests are in the first slot and are acknowledged at once: fetching its line for
            // writing saves the second transfer that an acknowledgement after a read costs.
            self.platform.prefetch_write(slots[0].line_of(me));
        }
        let mut is_all = true;
        for slot in slots[0].others().with_first() {
            let Some(kind) = slots[slot].kind_for(me) else {
                continue;
            };
            if kind.is_flush() || self.may_take(me, functions) {
                // SAFETY: 1. just seen, and not in the ring, where it could be found again.
                unsafe { self.serve_or_keep(me, Place::in_inbox(initiator, slot), kind) };
            } else {
                is_all = false;
            }
        }
        is_all
    }

    /// Whether one more function can be served or kept.
    #[inline]
    fn may_take(&self, me: CpuId, functions: Functions) -> bool {
        functions == Functions::Run && self.state(me).backlog.has_room()
    }

    /// Whether the initiator may have more requests here: its functions run in the order in which they were published.
    #[inline]
    fn is_one_of_several(&self, place: Place) -> bool {
        let first = &self.state(place.initiator()).slots[0];
        place.slot() > 0 || first.others() != OtherSlots::NONE
    }

    /// Serves a request, or adds it to the backlog, which has room, if it is a function that waits for its turn.
    ///
    /// # Safety
    /// 1. It names this CPU, which has not acknowledged it.
    #[inline]
    unsafe fn serve_or_keep(&self, me: CpuId, place: Place, kind: Kind) {
        let state = self.state(me);
        state.served.set(state.served.get() + 1);
        if kind.is_flush() {
            // SAFETY: duty 1.
            unsafe { self.serve_flush(me, place, kind) };
        } else if kind.merges() || state.is_slow.get() || self.is_one_of_several(place) {
            state.backlog.add(Found {
                place,
                kind,
                number: self.slot_at(place).number(),
            });
        } else {
            // SAFETY: duty 1.
            let request = unsafe { self.slot_at(place).contents() };
            self.run_and_acknowledge(me, (place, kind), &request);
        }
    }
}
