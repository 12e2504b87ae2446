//! The words of this crate: [`Word`] for what is checked, [`Tally`] for the books about it.

#[cfg(not(feature = "sim"))]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::{AtomicU64 as CoreU64, Ordering};
#[cfg(feature = "sim")]
use shootdown::sim::AtomicU64;

/// A word whose order against the engine's own accesses is what a check is about. Relaxed unless its method says
/// otherwise, so that the order has to come from the engine.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

impl Word {
    pub(crate) const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// A number that no check takes an order from. Always a `core` atomic: a simulated machine need not see it.
#[derive(Debug)]
pub(crate) struct Tally(CoreU64);

impl Tally {
    pub(crate) const fn new(value: u64) -> Self {
        Self(CoreU64::new(value))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// As [`get`](Self::get), and sees what was done before the value was [raised](Self::raise) or stored.
    pub(crate) fn get_published(&self) -> u64 {
        // ORDERING: Acquire; pairs with `raise` and `publish`.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// As [`set`](Self::set): a reader by [`get_published`](Self::get_published) sees what was done before.
    pub(crate) fn publish(&self, value: u64) {
        // ORDERING: Release; pairs with `get_published` and `take`.
        self.0.store(value, Ordering::Release);
    }

    /// Adds, wrapping; returns the value before.
    pub(crate) fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::Relaxed)
    }

    /// The larger of the two, published.
    pub(crate) fn raise(&self, value: u64) {
        // ORDERING: Release says that the flush for this value is over; pairs with `get_published`.
        self.0.fetch_max(value, Ordering::AcqRel);
    }

    /// Turns zero into `value`; true if it was zero. A lock that nobody waits for.
    pub(crate) fn take(&self, value: u64) -> bool {
        self.take_from(0, value)
    }

    /// The same from another value than zero.
    pub(crate) fn take_from(&self, free: u64, value: u64) -> bool {
        self.0
            // ORDERING: Acquire sees what the last owner did; pairs with `publish`.
            .compare_exchange(free, value, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Clears the lowest set bit and returns its number.
    pub(crate) fn take_bit(&self) -> Option<u32> {
        let mut bits = self.0.load(Ordering::Relaxed);
        while bits != 0 {
            let rest = bits & (bits - 1);
            // ORDERING: Acquire sees the last user's writes; pairs with `give_bit`.
            match self
                .0
                .compare_exchange_weak(bits, rest, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(bits.trailing_zeros()),
                Err(now) => bits = now,
            }
        }
        None
    }

    /// Sets a bit; true if it was clear.
    pub(crate) fn give_bit(&self, bit: u32) -> bool {
        // ORDERING: Release publishes this user's writes; pairs with `take_bit`.
        self.0.fetch_or(1 << bit, Ordering::Release) & (1 << bit) == 0
    }
}

/// For two parties that each write one tally and read the other's: at least one of them sees the other's.
pub(crate) fn fence_between() {
    // ORDERING: store of the own / load of the other's; pairs with itself on the other side.
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// A plain word, not atomic: that two CPUs may use it in turn is the very promise under test. A broken engine makes a
/// data race of it, which ThreadSanitizer reports.
#[derive(Debug)]
pub(crate) struct Plain(core::cell::UnsafeCell<u64>);

// SAFETY: the accesses are volatile words, and the engine under test orders them; see the type.
unsafe impl Sync for Plain {}

impl Plain {
    pub(crate) const fn new() -> Self {
        Self(core::cell::UnsafeCell::new(0))
    }

    pub(crate) fn get(&self) -> u64 {
        // SAFETY: a valid, aligned word; the writer is ordered before by the engine.
        unsafe { self.0.get().read_volatile() }
    }

    pub(crate) fn set(&self, value: u64) {
        // SAFETY: a valid, aligned word; other users are ordered before and after by the engine.
        unsafe { self.0.get().write_volatile(value) }
    }
}

/// Keeps neighbours off its cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
