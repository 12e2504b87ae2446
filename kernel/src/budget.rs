//! Bounds on kernel memory that user programs can ask for.

use core::sync::atomic::{AtomicUsize, Ordering};

/// At most `MOST` of something are out at one time.
#[derive(Debug)]
pub struct Budget<const MOST: usize> {
    taken: AtomicUsize,
}

/// So many of them; dropping it gives them back.
#[derive(Debug)]
pub struct Share<const MOST: usize> {
    of: &'static Budget<MOST>,
    count: usize,
}

impl<const MOST: usize> Budget<MOST> {
    /// Nothing is taken.
    pub const fn full() -> Self {
        Self {
            taken: AtomicUsize::new(0),
        }
    }

    /// So many, or `None` where there are fewer left. Any context.
    pub fn take(&'static self, count: usize) -> Option<Share<MOST>> {
        let more = |taken: usize| taken.checked_add(count).filter(|&sum| sum <= MOST);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Share { of: self, count })
    }
}

impl<const MOST: usize> Drop for Share<MOST> {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}
