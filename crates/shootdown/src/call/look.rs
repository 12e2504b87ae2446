//! Looking for requests: in the slots of initiators that the inbox names, and in the ring. Flushes are served at once, functions go
//! into the backlog.

use crate::call::backlog::{Backlog, Found};
use crate::call::ring::{Announcement, MOST_READ};
use crate::call::{Kind, Place};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;

/// What a look at one slot found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    /// Nothing that names this CPU.
    Nothing,
    /// A flush, which is served, or a function, which is in the backlog.
    Taken,
    /// A function that cannot run now.
    Left,
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

    /// Reads the broadcasts that this CPU has not read: serves the flushes, and puts the functions into the backlog, as far as
    /// there is one and it has room. True if there were any.
    pub(super) fn read_ring(&self, me: CpuId, backlog: Option<&Backlog>) -> bool {
        let (reader, ring) = (&self.state(me).ring, self.ring_of(me));
        #[cfg(loom)]
        if ring.is_used.get() == 0 {
            return false;
        }
        let (mut is_named, mut from) = (false, reader.next());
        let is_full = backlog.is_none_or(|backlog| !backlog.has_room());
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
                    let room = backlog.filter(|backlog| backlog.has_room());
                    let kind = self.slot_at(place).kind();
                    // SAFETY: 1. a target reads each ticket once.
                    match unsafe { self.serve_or_keep(me, place, kind, room) } {
                        Look::Taken => {
                            reader.has_read(ticket);
                            is_named = true;
                        }
                        _ => reader.leave(ticket),
                    }
                }
            }
        }
        if backlog.is_some() && reader.has_functions() {
            // Their interrupts may have come already.
            self.state(me).look_again.set(true);
        }
        is_named
    }

    /// Serves the flush requests of `initiator` and adds its functions to the backlog, which has room if there is one; true if
    /// nothing is left of it.
    #[inline]
    pub(super) fn look_at(&self, me: CpuId, initiator: CpuId, backlog: Option<&Backlog>) -> bool {
        let slots = &self.state(initiator).slots;
        if self.prefetches() {
            // Most requests are in the first slot and are acknowledged at once: fetching its line for
            // writing saves the second transfer that an acknowledgement after a read costs.
            self.platform.prefetch_write(slots[0].line_of(me));
        }
        let mut is_all = true;
        for slot in slots[0].others().with_first() {
            let place = Place::in_inbox(initiator, slot);
            let look = match slots[slot].kind_for(me) {
                None => Look::Nothing,
                // SAFETY: 1. just seen, and not in the ring, where it could be found again.
                Some(kind) => unsafe { self.serve_or_keep(me, place, kind, backlog) },
            };
            is_all &= look != Look::Left;
        }
        is_all
    }

    /// Serves a request if it is a flush, and adds it to the backlog, if there is one, if it is a function.
    ///
    /// # Safety
    /// 1. It names this CPU, which has not acknowledged it.
    #[inline]
    unsafe fn serve_or_keep(
        &self,
        me: CpuId,
        place: Place,
        kind: Kind,
        backlog: Option<&Backlog>,
    ) -> Look {
        if kind.is_flush() {
            // SAFETY: duty 1.
            unsafe { self.serve_flush(me, place, kind) };
            return Look::Taken;
        }
        let Some(backlog) = backlog else {
            return Look::Left;
        };
        backlog.add(Found {
            place,
            kind,
            number: self.slot_at(place).number(),
        });
        Look::Taken
    }
}
