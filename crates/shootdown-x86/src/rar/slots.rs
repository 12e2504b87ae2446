//! Which payloads of a table nobody owns.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU64, Ordering};

/// The slots of a table, one a bit.
#[derive(Debug)]
pub(super) struct Slots {
    /// Whoever clears a bit owns the slot.
    unowned: AtomicU64,
    /// Slots that every CPU has.
    usable: AtomicU64,
}

impl Slots {
    #[cfg(not(all(loom, test)))]
    pub(super) const fn new() -> Self {
        Self {
            unowned: AtomicU64::new(u64::MAX),
            usable: AtomicU64::new(u64::MAX),
        }
    }

    /// Nobody takes a slot beyond `last` from now on.
    #[cfg(not(all(loom, test)))]
    pub(super) fn end_at(&self, last: u32) {
        // ORDERING: Relaxed: a number by itself; requests that name the CPU that says it come later.
        self.usable
            .fetch_and(u64::MAX >> (u64::BITS - 1 - last), Ordering::Relaxed);
    }

    /// Takes a slot for which `fits` returns true; it may look at what the last owner left there.
    pub(super) fn take(&self, mut fits: impl FnMut(usize) -> bool) -> Option<usize> {
        // ORDERING: Relaxed: a hint.
        let mut tried = self.unowned.load(Ordering::Relaxed) & self.usable.load(Ordering::Relaxed);
        while tried != 0 {
            let slot = tried.trailing_zeros() as usize;
            tried &= tried - 1;
            // ORDERING: Acquire: what the last owner wrote is there.
            if self.unowned.fetch_and(!(1 << slot), Ordering::Acquire) >> slot & 1 == 0 {
                continue;
            }
            if fits(slot) {
                return Some(slot);
            }
            self.give_back(slot);
        }
        None
    }

    /// The slot is anybody's, as its owner leaves it.
    pub(super) fn give_back(&self, slot: usize) {
        // ORDERING: Release: the next owner sees what this one wrote, and writes after its last look.
        self.unowned.fetch_or(1 << slot, Ordering::Release);
    }
}

#[cfg(all(loom, test))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// What the owners of two slots write there.
    struct Table(Slots, [UnsafeCell<u64>; 2]);

    // SAFETY: only a slot's owner uses its cell, which loom checks.
    unsafe impl Sync for Table {}
    // SAFETY: as above.
    unsafe impl Send for Table {}

    impl Table {
        fn new(slots: u64) -> Arc<Self> {
            let slots = Slots {
                unowned: AtomicU64::new(slots),
                usable: AtomicU64::new(u64::MAX),
            };
            Arc::new(Self(slots, [UnsafeCell::new(0), UnsafeCell::new(0)]))
        }

        /// Owns a slot for a while that is `fits`; says whether it did.
        fn use_one(&self, fits: fn(u64) -> bool) -> bool {
            // SAFETY: loom reports a use that another may overlap.
            let read = |slot: usize| self.1[slot].with(|value| unsafe { *value });
            let taken = self.0.take(|slot| fits(read(slot)));
            if let Some(slot) = taken {
                // SAFETY: as above.
                self.1[slot].with_mut(|value| unsafe { *value += 1 });
                self.0.give_back(slot);
            }
            taken.is_some()
        }
    }

    /// Two initiators look for slots at the same time: each is its owner's alone.
    fn initiators_take(slots: u64, fits: fn(u64) -> bool) {
        loom::model(move || {
            let table = Table::new(slots);
            let other = {
                let table = table.clone();
                thread::spawn(move || table.use_one(fits))
            };
            table.use_one(|_| true);
            other.join().unwrap();
            assert!(table.use_one(|_| true), "given back");
        });
    }

    #[test]
    fn a_slot_has_one_owner() {
        initiators_take(0b1, |_| true);
        initiators_take(0b11, |_| true);
        initiators_take(0b11, |used| used > 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The CPU with the fewest, whenever it starts.
    #[test]
    fn slots_end_where_they_end_for_any_cpu() {
        for lasts in [[2, 63], [63, 2], [2, 2]] {
            let slots = Slots::new();
            for last in lasts {
                slots.end_at(last);
            }
            let taken = [(); 4].map(|()| slots.take(|_| true));
            assert_eq!(taken, [Some(0), Some(1), Some(2), None], "{lasts:?}");
        }
    }
}
