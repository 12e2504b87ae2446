//! Bounds on kernel memory that user programs can ask for through files.

use core::sync::atomic::{AtomicUsize, Ordering};

/// At most `MOST` shares are out at one time.
#[derive(Debug)]
pub(super) struct Budget<const MOST: usize> {
    taken: AtomicUsize,
}

/// One share; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share<const MOST: usize>(&'static Budget<MOST>);

impl<const MOST: usize> Budget<MOST> {
    /// Nothing is taken.
    pub const fn new() -> Self {
        Self {
            taken: AtomicUsize::new(0),
        }
    }

    /// One share, or `None` when all are out.
    pub fn take(&'static self) -> Option<Share<MOST>> {
        let more = |taken| (taken < MOST).then_some(taken + 1);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Share(self))
    }
}

impl<const MOST: usize> Drop for Share<MOST> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
