//! A word to wait on: the one blocking primitive that is safe in a signal handler.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Zero, or what somebody has put there; one waits until it is not zero.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(AtomicU32);

impl Mailbox {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Puts `value`, which is not zero, there, and wakes who waits.
    pub(crate) fn put(&self, value: u32) {
        // ORDERING: Release publishes what the giver did; pairs with the Acquire in `take`.
        self.0.store(value, Ordering::Release);
        wake(&self.0);
    }

    /// Takes what is there, if anything.
    pub(crate) fn try_take(&self) -> Option<u32> {
        // ORDERING: see `put`.
        match self.0.swap(0, Ordering::Acquire) {
            0 => None,
            value => Some(value),
        }
    }

    /// Waits for something to take.
    pub(crate) fn take(&self) -> u32 {
        loop {
            if let Some(value) = self.try_take() {
                return value;
            }
            wait(&self.0, 0, None);
        }
    }

    /// Waits until something is there, at most this long, or less.
    pub(crate) fn await_some(&self, most: Duration) {
        wait(&self.0, 0, Some(most));
    }

    /// Whether something is there; sees what its giver did.
    pub(crate) fn is_full(&self) -> bool {
        // ORDERING: see `put`.
        self.0.load(Ordering::Acquire) != 0
    }
}

/// A bell: one reads its count, looks whether there is work, and sleeps only if the count is still the same.
#[derive(Debug, Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn count(&self) -> u32 {
        // ORDERING: Acquire sees the work that was rung for; pairs with `ring`.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn ring(&self) {
        // ORDERING: Release publishes the work; pairs with `count`.
        self.0.fetch_add(1, Ordering::Release);
        wake(&self.0);
    }

    /// Sleeps unless it was rung since `count`; may wake for no reason.
    pub(crate) fn sleep(&self, count: u32, most: Option<Duration>) {
        wait(&self.0, count, most);
    }
}

fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the address is that of a living word; waking touches no memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

fn wait(word: &AtomicU32, expected: u32, most: Option<Duration>) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let timeout = most.map(|most| libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos() as libc::c_long,
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: word and timeout live through the call. Every outcome (woken, changed, interrupted, too late) makes the
    // caller look again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, timeout) };
}
