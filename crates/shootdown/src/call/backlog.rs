//! [`Backlog`]: the functions that a responder has found in slots and runs oldest first.
//!
//! It lies in its CPU's own memory, empty between two interrupts. This CPU's bit stays set in the pending set of each request in it,
//! and only this CPU clears it: so nothing has to be looked at again before it runs. (Looking again is not free: the other targets
//! are acknowledging in that very line.)

use crate::call::{Kind, Number, Place};
use crate::sync::OwnWord;

/// Functions that are compared with each other; those of further initiators wait for their turn in the set `waiting`.
#[cfg(not(loom))]
const CAPACITY: usize = 16;
/// Two keep the models small.
#[cfg(loom)]
const CAPACITY: usize = 2;

/// A function that waits for this CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    /// What the slot said about it.
    pub(super) kind: Kind,
    pub(super) number: Number,
}

/// A function in three words.
#[derive(Debug)]
struct Entry {
    place: [OwnWord; 2],
    /// The request's number, then its kind, of which one bit means here that it is merged: one that runs before it is the same
    /// function, and serves it too.
    number: OwnWord,
}

impl Entry {
    /// No kind has this bit.
    const MERGED: u64 = 1 << 7;

    const fn new() -> Self {
        Self {
            place: [const { OwnWord::new() }; 2],
            number: OwnWord::new(),
        }
    }

    #[inline]
    fn set(&self, found: Found) {
        let [first, second] = found.place.to_words();
        self.place[0].set(first);
        self.place[1].set(second);
        self.number.set(found.number.bits() | found.kind.bits());
    }

    #[inline]
    fn place(&self) -> Place {
        Place::from_words([self.place[0].get(), self.place[1].get()])
    }

    #[inline]
    fn number(&self) -> Number {
        Number::from_header(self.number.get())
    }

    #[inline]
    fn get(&self) -> Found {
        Found {
            place: self.place(),
            kind: Kind::from_header(self.number.get()),
            number: self.number(),
        }
    }

    fn is_merged(&self) -> bool {
        self.number.get() & Self::MERGED != 0
    }
}

/// Some functions, in no order.
#[derive(Debug)]
pub(crate) struct Backlog {
    entries: [Entry; CAPACITY],
    len: OwnWord,
}

impl Backlog {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const { Entry::new() }; CAPACITY],
            len: OwnWord::new(),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        (self.len.get() as usize).min(CAPACITY)
    }

    #[inline]
    fn all(&self) -> &[Entry] {
        &self.entries[..self.len()]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Whether one more function fits.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() < CAPACITY
    }

    /// Adds a function. One that is here already, found again because its initiator has called once more, stays once.
    #[inline]
    pub(super) fn add(&self, new: Found) {
        let is_known = self.all().iter().any(|known| known.place() == new.place);
        match self.entries.get(self.len()) {
            Some(entry) if !is_known => {
                entry.set(new);
                self.len.set(self.len.get() + 1);
            }
            _ => {}
        }
    }

    /// Marks those as merged for which `is_same` says so; returns how many.
    pub(super) fn merge(&self, mut is_same: impl FnMut(&Found) -> bool) -> u64 {
        let mut merged = 0;
        for entry in self.all() {
            if is_same(&entry.get()) {
                entry.number.set(entry.number.get() | Entry::MERGED);
                merged += 1;
            }
        }
        merged
    }

    /// Takes one out that is merged.
    pub(super) fn take_merged(&self) -> Option<Found> {
        let at = self.all().iter().position(Entry::is_merged)?;
        Some(self.take(at))
    }

    /// Takes out what is at `at`, which is in use; the last one goes there.
    #[inline]
    fn take(&self, at: usize) -> Found {
        let all = self.all();
        let found = all[at].get();
        match all.split_last() {
            Some((last, _)) if at != all.len() - 1 => {
                all[at].set(last.get());
                all[at].number.set(last.number.get());
            }
            _ => {}
        }
        self.len.set(all.len() as u64 - 1);
        found
    }

    /// Takes the oldest out.
    #[inline]
    pub(super) fn take_oldest(&self) -> Option<Found> {
        if self.is_empty() {
            return None;
        }
        let (all, mut oldest) = (self.all(), 0);
        for at in 1..all.len() {
            if all[at].number().is_before(all[oldest].number()) {
                oldest = at;
            }
        }
        Some(self.take(oldest))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Backlog, CAPACITY, Found};
    use crate::call::{Kind, Number, Place, Ticket};
    use crate::cpu::CpuId;

    fn found(initiator: u32, index: usize, number: u64) -> Found {
        Found {
            place: Place::in_inbox(CpuId::new(initiator), index),
            kind: Kind::CALL,
            number: Number::from_header(number << 8),
        }
    }

    #[test]
    fn what_is_put_in_comes_out() {
        let backlog = Backlog::new();
        let ticket = Ticket::from_u64((1 << 48) - 1);
        let all = [
            found(4095, 2, (1 << 56) - 1),
            Found {
                place: Place::in_ring(CpuId::new(4095), 2, ticket),
                kind: Kind::CALL.ack_first().merge(),
                number: Number::from_header(0),
            },
        ];
        all.into_iter().for_each(|found| backlog.add(found));
        assert_eq!(backlog.take_oldest(), Some(all[0]));
        assert_eq!(backlog.take_oldest(), Some(all[1]));
        assert_eq!(backlog.take_oldest(), None);
    }

    #[test]
    fn the_oldest_goes_first_and_nothing_is_there_twice() {
        let last = (1 << 56) - 1;
        for first in [0, 90, last - 1] {
            let backlog = Backlog::new();
            for (initiator, index, after) in [(3, 0, 2), (1, 2, 0), (3, 0, 2), (1, 0, 4), (2, 0, 0)]
            {
                backlog.add(found(initiator, index, (first + after) & last));
            }
            let order = core::array::from_fn(|_| {
                let oldest = backlog.take_oldest().expect("four of them");
                (oldest.place.initiator().as_u32(), oldest.place.slot())
            });
            assert_eq!(order, [(1, 2), (2, 0), (3, 0), (1, 0)], "from {first}");
            assert!(backlog.take_oldest().is_none());
        }
    }

    #[test]
    fn merged_functions_are_taken_together() {
        let backlog = Backlog::new();
        for initiator in 1..=4 {
            backlog.add(found(initiator, 0, u64::from(initiator)));
        }
        let is_even = |found: &Found| found.place.initiator().as_u32() % 2 == 0;
        assert_eq!(backlog.merge(is_even), 2);
        let merged = core::iter::from_fn(|| backlog.take_merged());
        assert!(
            merged
                .map(|found| found.place.initiator().as_u32())
                .sum::<u32>()
                == 6
        );
        assert_eq!(core::iter::from_fn(|| backlog.take_oldest()).count(), 2);
    }

    #[test]
    fn there_is_room_for_as_many_as_it_holds() {
        let backlog = Backlog::new();
        for initiator in 0..CAPACITY as u32 {
            assert!(backlog.has_room());
            backlog.add(found(initiator, 0, 0));
        }
        assert!(!backlog.has_room());
        assert!(backlog.take_oldest().is_some() && backlog.has_room());
    }
}
