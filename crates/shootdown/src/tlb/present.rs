//! Residents: CPUs that stay in a space's set while they run something else.
//!
//! A CPU with [windows](crate::windows::WindowRoot) comes and goes all the time: a server's thread runs for the length of one request. Entering and
//! leaving the set would write a line that all such CPUs share, twice a request. So its bit stays, and a mark on a line of its own
//! says whether it is there. Only flushes of such a space look at marks.
//!
//! A mark is two words. `here` is what the CPU has loaded or is about to load, `was` what it is about to leave. It stores `was` before
//! `here`, and clears `was` when the root has been loaded; an initiator that finds another space in `here` and then in `was` knows that the
//! CPU has left, its speculation too (I4, I5). `here` is stored before the barrier of I2.

use crate::sync::Ordering;
use crate::tlb::{LazyMark, SpaceId};

/// Which space a CPU is in, as far as it is a resident there.
impl LazyMark {
    /// The CPU is about to load `space`. The barrier of I2 and [`settle`](Self::settle) must follow.
    pub(crate) fn arrive(&self, space: SpaceId) {
        let before = self.here_copy.get();
        if before == space.0 {
            return;
        }
        if before != 0 {
            // ORDERING: Release: see `settle`, whose zero this may hide.
            self.was.store(before, Ordering::Release);
        }
        // ORDERING: Release publishes `was`; pairs with `is_in`.
        self.here.store(space.0, Ordering::Release);
        self.here_copy.set(space.0);
    }

    /// The CPU has loaded a root: that of the space where it has [arrived](Self::arrive), or, with `None`, of one where it is no
    /// resident.
    pub(crate) fn settle(&self, here: Option<SpaceId>) {
        if !self.is_anywhere() {
            return;
        }
        match here {
            // ORDERING: Release publishes that the root of the space before is gone (I4, I5); pairs with `is_in`.
            Some(_) => self.was.store(0, Ordering::Release),
            None => {
                // ORDERING: as above.
                self.here.store(0, Ordering::Release);
                self.here_copy.set(0);
            }
        }
    }

    /// Whether there is any space where the CPU is a resident and which it has loaded, or is about to. On the CPU itself.
    #[inline]
    pub(crate) fn is_anywhere(&self) -> bool {
        self.here_copy.get() != 0
    }

    /// Whether the CPU, seen from another, may use translations of `space`, or may be about to. After the barrier that follows the
    /// page-table change.
    pub(crate) fn is_in(&self, space: SpaceId) -> bool {
        // ORDERING: Acquire: an initiator that sees another space in `here` sees in `was` what was left for it, or that it is left; pairs with
        // `arrive` and `settle`.
        self.here.load(Ordering::Acquire) == space.0 || self.was.load(Ordering::Acquire) == space.0
    }
}
