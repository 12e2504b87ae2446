//! [`WakeBudget`]: how long threads that wake up may go before those that run.
//!
//! A thread that waits for something else than the CPU is to run as soon as that is there: a copier, a shell. If it went before a
//! running thread each time, threads that sleep a moment now and then would leave nothing to one that never sleeps. So those that were
//! woken, together, go first for as long as others have run since, and one slice more; then they take turns like all others.

use core::sync::atomic::{AtomicI64, Ordering};

use super::scheduling::{Priority, SLICE_NS};

/// The budget of one CPU, in nanoseconds; below zero it is overdrawn. Its CPU changes it, others read it as a hint.
#[derive(Debug)]
pub struct WakeBudget(AtomicI64);

impl WakeBudget {
    const LIMIT: i64 = SLICE_NS as i64;

    /// A slice.
    pub const fn full() -> Self {
        Self(AtomicI64::new(Self::LIMIT))
    }

    /// Whether a thread that wakes up goes first.
    pub fn allows(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// A thread, or with [`Priority::NORMAL`] nobody, ran so long; `is_awaited`: and others waited for it.
    pub fn account(&self, priority: Priority, is_awaited: bool, ran_ns: u64) {
        let ran = i64::try_from(ran_ns).unwrap_or(i64::MAX);
        let before = self.0.load(Ordering::Relaxed);
        let after = match priority {
            Priority::NORMAL => before.saturating_add(ran),
            Priority::AWAKE if is_awaited => before.saturating_sub(ran),
            _ => before,
        };
        self.0
            .store(after.clamp(-Self::LIMIT, Self::LIMIT), Ordering::Relaxed);
    }
}
