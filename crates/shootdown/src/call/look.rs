//! Looking for requests: in the slots of initiators that the inbox names, and in the ring. Flushes are served at once. So are
//! functions, as long as they are short; long ones, and those that may be merged, go into the backlog.

use crate::call::backlog::Found;
use crate::call::ring::MOST_READ;
use crate::call::ring_entry::Announcement;
use crate::call::{Kind, OtherSlots, Place};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::Platform;

/// What a look serves; the rest is left where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serve {
    /// Flushes that are acknowledged before they are done; [`flush_owed`](Shootdown::flush_owed) does them, afterwards.
    EarlyFlushes,
    /// All flushes; those too.
    Flushes,
    /// Functions too, now or from the backlog. Each flush is done at once.
    All,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Whether there is a broadcast that this CPU has not read, and that is not known to be a function if those are skipped; a hint.
    #[inline]
    pub(crate) fn is_broadcast_due(&self, me: Here<'_, N>, skip_functions: bool) -> bool {
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

    /// Reads the broadcasts that this CPU has not read: serves the flushes, and the functions where they may run, as far as the
    /// backlog has room. True if there were any.
    #[inline]
    pub(super) fn read_ring(&self, me: Here<'_, N>, serve: Serve) -> bool {
        // Where nothing lies at the next ticket, nothing lies further.
        self.is_broadcast_due(me, false) && self.read_tickets(me, serve)
    }

    #[inline(never)]
    fn read_tickets(&self, me: Here<'_, N>, serve: Serve) -> bool {
        let (reader, ring) = (&me.ring, self.ring_of(me.cpu));
        let (mut is_named, mut from, mut pace) = (false, reader.next(), None);
        let is_full = !Self::may_take(me, serve);
        for _ in 0..MOST_READ {
            let Some(ticket) = reader.next_from(from, is_full) else {
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
                    if !kind.is_flush() && !Self::may_take(me, serve) {
                        reader.leave(ticket);
                        continue;
                    }
                    // Before it is served: a function that polls reads the ring too.
                    reader.has_read(ticket);
                    let others = self.state(initiator).slots[0].others();
                    // SAFETY: 1. a target reads each ticket once.
                    unsafe { self.serve_or_keep(me, place, kind, others, serve) };
                    is_named = true;
                    match &mut pace {
                        Some(pace) => self.keep_pace(me, pace),
                        None if serve == Serve::All => pace = Some(self.begin_pace()),
                        None => {}
                    }
                }
            }
        }
        self.flush_owed(me);
        is_named
    }

    /// Serves the flush requests of `initiator`, and its functions where they may run; true if nothing is left of it.
    #[inline]
    pub(super) fn look_at(&self, me: Here<'_, N>, initiator: CpuId, serve: Serve) -> bool {
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
            if kind.is_flush() || Self::may_take(me, serve) {
                let place = Place::in_inbox(initiator, slot);
                // SAFETY: 1. just seen, and not in the ring, where it could be found again.
                is_all &= unsafe { self.serve_or_keep(me, place, kind, others, serve) };
            } else {
                is_all = false;
            }
        }
        is_all
    }

    /// Whether one more function can be served or kept.
    #[inline]
    fn may_take(me: Here<'_, N>, serve: Serve) -> bool {
        serve == Serve::All && me.backlog.has_room()
    }

    /// Serves a request, or adds it to the backlog, which has room, if it is a function that waits for its turn; false if it is a
    /// flush that is left. `others` are those of its initiator's slots that may hold requests, too: its functions run in the order
    /// in which they were published.
    ///
    /// # Safety
    /// 1. It names this CPU, which has not acknowledged it.
    #[inline(always)]
    unsafe fn serve_or_keep(
        &self,
        me: Here<'_, N>,
        place: Place,
        kind: Kind,
        others: OtherSlots,
        serve: Serve,
    ) -> bool {
        me.served.set(me.served.get() + 1);
        let is_one_of_several = place.slot() > 0 || others != OtherSlots::NONE;
        if kind.is_flush() {
            // SAFETY: duty 1.
            return unsafe { self.serve_flush(me, place, kind, serve) };
        }
        if kind.merges() || me.is_slow.get() || is_one_of_several {
            me.backlog.add(Found {
                place,
                kind,
                number: self.slot_at(place).number(),
            });
        } else {
            // SAFETY: duty 1.
            let request = unsafe { self.slot_at(place).contents() };
            self.run_and_acknowledge(me, (place, kind), &request);
        }
        true
    }
}
