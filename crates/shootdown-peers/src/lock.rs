//! [`TicketLock`]: who asks first is first, as Xen's and older Linux's spin locks.

use shootdown::Platform;
use shootdown::shim::{AtomicU64, Ordering};

/// A fair spin lock.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct TicketLock {
    next: AtomicU64,
    serving: AtomicU64,
}

impl TicketLock {
    pub(crate) const fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            serving: AtomicU64::new(0),
        }
    }

    /// Runs `work` while nobody else does. Spins with interrupts as they are.
    pub(crate) fn with<P: Platform, R>(&self, platform: &P, work: impl FnOnce() -> R) -> R {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // ORDERING: acquires what the one before did; pairs with the Release below.
        while self.serving.load(Ordering::Acquire) != ticket {
            platform.relax();
        }
        let result = work();
        // ORDERING: publishes what we did to the next one.
        self.serving
            .store(ticket.wrapping_add(1), Ordering::Release);
        result
    }
}
