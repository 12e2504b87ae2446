//! [`InFlight`]: flushes that are not over.

use alloc::sync::Arc;
use core::sync::atomic::{Ordering, fence};

/// Flushes of a space, or of a guest, that are submitted and not over. What they are for is gone from the tables, and other CPUs may still use it: an
/// operation that finds nothing left to take away relies on them, and has to wait as well (Linux has `mm_tlb_flush_pending`, and flushes again).
///
/// Each one holds a clone.
#[derive(Clone, Debug)]
pub struct InFlight(Arc<()>);

impl InFlight {
    /// None yet.
    pub fn none() -> Self {
        Self(Arc::new(()))
    }

    /// Whether there is any. Under the lock under which they are submitted.
    pub(in crate::mm) fn is_any(&self) -> bool {
        self.is_any_but(0)
    }

    /// Whether there are more than so many, which are the caller's.
    pub(super) fn is_any_but(&self, own: usize) -> bool {
        let any = Arc::strong_count(&self.0) > 1 + own;
        // ORDERING: pairs with the release with which a clone is dropped: who finds none comes after what the last one waited for.
        fence(Ordering::Acquire);
        any
    }
}
