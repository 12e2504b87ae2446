//! [`Backlog`]: the functions that a responder has found in slots and has still to run.
//!
//! It lives on the responder's stack for one interrupt. Who is in it has its bit set in the request's pending set, which only
//! this CPU clears: so nothing has to be looked at again before it runs. (Looking again is not free: the other targets are
//! acknowledging in that very line.)

use core::fmt;
use core::mem::MaybeUninit;

use crate::call::{Kind, Place, SLOTS};

/// Functions that are compared with each other; those of further initiators wait for their turn in the inbox's set.
#[cfg(not(loom))]
const CAPACITY: usize = 16;
/// Two keep the models small.
#[cfg(loom)]
const CAPACITY: usize = 2;

/// Functions that one initiator may have: its last slot is for flushes.
const PER_INITIATOR: usize = SLOTS - 1;

/// A function that waits for this CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    /// What the slot said about it.
    pub(super) kind: Kind,
    /// Its sequence number: the smaller, the older.
    pub(super) age: u64,
}

/// Some functions, in no order.
///
/// What is not in use is not initialised: every interrupt makes one of these, and most put one function in.
pub(super) struct Backlog {
    /// The first `len` are initialised.
    found: [MaybeUninit<Found>; CAPACITY],
    len: usize,
}

impl Backlog {
    /// An empty one. (A constant would be zeros, which are copied.)
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            found: [const { MaybeUninit::uninit() }; CAPACITY],
            len: 0,
        }
    }

    #[inline]
    fn all(&self) -> &[Found] {
        let used = &self.found[..self.len];
        // SAFETY: the first `len` are initialised, and `MaybeUninit` does not change the layout.
        unsafe { &*(core::ptr::from_ref(used) as *const [Found]) }
    }

    /// Whether all functions of one more initiator fit.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        CAPACITY - self.len >= PER_INITIATOR
    }

    /// Adds a function. One that is here already, found again because its initiator has called once more, stays once.
    #[inline]
    pub(super) fn add(&mut self, new: Found) {
        let is_known = self.all().iter().any(|known| known.place == new.place);
        if !is_known && let Some(place) = self.found.get_mut(self.len) {
            place.write(new);
            self.len += 1;
        }
    }

    /// Takes one out for which `wanted` says so.
    pub(super) fn take_if(&mut self, wanted: impl FnMut(&Found) -> bool) -> Option<Found> {
        let at = self.all().iter().position(wanted)?;
        Some(self.take(at))
    }

    /// Takes out what is at `at`, which is in use; the last one goes there.
    #[inline]
    fn take(&mut self, at: usize) -> Found {
        let (taken, last) = (self.all()[at], self.all()[self.len - 1]);
        self.found[at].write(last);
        self.len -= 1;
        taken
    }

    /// Takes the oldest out.
    #[inline]
    pub(super) fn take_oldest(&mut self) -> Option<Found> {
        let all = self.all();
        let at = (0..all.len()).min_by_key(|at| all[*at].age)?;
        Some(self.take(at))
    }
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Backlog, CAPACITY, Found, PER_INITIATOR};
    use crate::call::{Kind, Place};
    use crate::cpu::CpuId;

    fn found(initiator: u32, index: usize, age: u64) -> Found {
        let place = Place {
            initiator: CpuId::new(initiator),
            index,
            ticket: 0,
        };
        Found {
            place,
            kind: Kind::CALL,
            age,
        }
    }

    #[test]
    fn the_oldest_goes_first_and_nothing_is_there_twice() {
        let mut backlog = Backlog::new();
        for (initiator, index, age) in [(3, 0, 7), (1, 2, 5), (3, 0, 7), (1, 0, 9), (2, 0, 5)] {
            backlog.add(found(initiator, index, age));
        }
        let order = core::array::from_fn(|_| {
            let oldest = backlog.take_oldest().expect("four of them");
            (oldest.place.initiator.as_u32(), oldest.place.index)
        });
        assert_eq!(order, [(1, 2), (2, 0), (3, 0), (1, 0)]);
        assert!(backlog.take_oldest().is_none());
    }

    #[test]
    fn there_is_room_as_long_as_an_initiator_fits() {
        let mut backlog = Backlog::new();
        let mut initiators = 0;
        while backlog.has_room() {
            for index in 0..PER_INITIATOR {
                backlog.add(found(initiators, index, 0));
            }
            initiators += 1;
        }
        let held = core::iter::from_fn(|| backlog.take_oldest()).count();
        assert_eq!(held, initiators as usize * PER_INITIATOR);
        assert!(held + PER_INITIATOR > CAPACITY);
    }
}
