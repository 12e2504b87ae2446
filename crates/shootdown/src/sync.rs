//! The atomics of this crate's protocols.
//!
//! Every protocol is written against the names exported here, so that the same source runs on real
//! atomics, under `cfg(loom)` inside a model checker, and with feature `sim` on a simulated machine.
//! What takes part in no protocol always uses `core` atomics and never widens a model: statistics ([`Counter`]), what changes only when a
//! CPU is attached, and words of one CPU ([`OwnWord`], [`OwnFlag`]).

#[cfg(all(feature = "sim", not(loom)))]
pub(crate) mod line_name;
#[cfg(all(feature = "sim", not(loom)))]
pub(crate) mod simulated;
#[cfg(all(feature = "sim", not(loom)))]
pub(crate) mod start;
#[cfg(all(feature = "sim", not(loom)))]
pub(crate) mod stopped;

#[cfg(not(any(loom, feature = "sim")))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(all(feature = "sim", not(loom)))]
pub(crate) use simulated::{AtomicU64, Ordering, fence};

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64 as CoreU64, Ordering as CoreOrdering};

use crate::platform::Platform;

/// The same names for `shootdown-peers`, whose algorithms must run wherever the engine runs. No part of the API.
#[cfg(not(loom))]
pub mod shim {
    pub use super::PlainCell;
    #[cfg(feature = "sim")]
    pub use super::line_name::{first_name, touches};
    #[cfg(feature = "sim")]
    pub use super::simulated::{AtomicU64, Ordering, fence};
    #[cfg(not(feature = "sim"))]
    pub use core::sync::atomic::{AtomicU64, Ordering, fence};
}

/// Declares a function that is `const`, except under loom, whose atomics are not const-constructible.
macro_rules! const_fn {
    ($(#[$attribute:meta])* $visibility:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])* $visibility const fn $($rest)*
        #[cfg(loom)]
        $(#[$attribute])* $visibility fn $($rest)*
    };
}
pub(crate) use const_fn;

/// An array of freshly built values, in const context where atomics allow it.
macro_rules! array_of {
    ($value:expr; $length:expr) => {{
        #[cfg(not(loom))]
        let array = [const { $value }; $length];
        #[cfg(loom)]
        let array = core::array::from_fn(|_| $value);
        array
    }};
}
pub(crate) use array_of;

/// A plain memory cell whose exclusivity is proved by a protocol around it (a request slot's pending
/// set). Under loom every access is checked against that claim.
#[derive(Debug)]
pub struct PlainCell<T> {
    #[cfg(not(loom))]
    value: core::cell::UnsafeCell<T>,
    #[cfg(loom)]
    value: loom::cell::UnsafeCell<T>,
}

// SAFETY: PlainCell hands out no references; `write` and `read` are unsafe and their callers promise
// exclusion (see their duties), so sharing the cell between threads adds no access by itself.
unsafe impl<T: Send> Sync for PlainCell<T> {}

impl<T: Copy> PlainCell<T> {
    const_fn! {
        /// A cell with this value.
        pub fn new(value: T) -> Self {
            #[cfg(not(loom))]
            let value = core::cell::UnsafeCell::new(value);
            #[cfg(loom)]
            let value = loom::cell::UnsafeCell::new(value);
            Self { value }
        }
    }

    /// Overwrites the value.
    ///
    /// # Safety
    /// 1. No other access to this cell happens concurrently: the caller owns it by protocol.
    pub unsafe fn write(&self, value: T) {
        #[cfg(all(feature = "sim", not(loom)))]
        simulated::plain(self.value.get() as usize, simulated::Plain::Write);
        #[cfg(not(loom))]
        // SAFETY: duty 1 gives exclusive access for the duration of this store.
        unsafe {
            *self.value.get() = value;
        }
        #[cfg(loom)]
        self.value.with_mut(|pointer| {
            // SAFETY: duty 1, which loom checks as well.
            unsafe { *pointer = value }
        });
    }

    /// Copies the value out.
    ///
    /// # Safety
    /// 1. No write to this cell happens concurrently, and the last one happens-before this read.
    pub unsafe fn read(&self) -> T {
        #[cfg(all(feature = "sim", not(loom)))]
        simulated::plain(self.value.get() as usize, simulated::Plain::Read);
        #[cfg(not(loom))]
        // SAFETY: duty 1.
        unsafe {
            *self.value.get()
        }
        #[cfg(loom)]
        self.value.with(|pointer| {
            // SAFETY: duty 1, which loom checks as well.
            unsafe { *pointer }
        })
    }
}

/// A statistics counter of one CPU, which any CPU reads, where `P` [has counters](crate::Config::with_counters). All additions to it go by the same method.
#[derive(Debug)]
pub(crate) struct Counter<P>(CoreU64, PhantomData<fn(P)>);

impl<P: Platform> Counter<P> {
    pub(crate) const fn new() -> Self {
        Self(CoreU64::new(0), PhantomData)
    }

    /// Adds `amount`, by a plain load and store: only the owning CPU calls this, with interrupts off.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        if P::CONFIG.has_counters {
            let value = self.0.load(CoreOrdering::Relaxed);
            self.0
                .store(value.wrapping_add(amount), CoreOrdering::Relaxed);
        }
    }

    /// The same by one locked operation: on any CPU, in any context.
    #[inline]
    pub(crate) fn add_anywhere(&self, amount: u64) {
        if P::CONFIG.has_counters {
            self.0.fetch_add(amount, CoreOrdering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(CoreOrdering::Relaxed)
    }
}

/// Pads a value to two 64-byte lines, the unit that adjacent-line prefetchers move.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// A word without any ordering: of one CPU, which uses it with interrupts off, or one of which any value that was there is good enough. Atomic so that a
/// mistake of the host stays a wrong value, never a data race.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct OwnWord(CoreU64);

impl OwnWord {
    pub(crate) const fn new() -> Self {
        Self(CoreU64::new(0))
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(CoreOrdering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, CoreOrdering::Relaxed);
    }
}

/// A flag of one CPU's own, as [`OwnWord`].
#[derive(Debug)]
pub(crate) struct OwnFlag(AtomicBool);

impl OwnFlag {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(CoreOrdering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: bool) {
        self.0.store(value, CoreOrdering::Relaxed);
    }

    #[inline]
    pub(crate) fn replace(&self, value: bool) -> bool {
        let before = self.get();
        self.set(value);
        before
    }
}

/// A reference that is set once and shared; null at the start. What is behind it takes part in protocols, the reference itself does
/// not: it is set before the first use of what is behind it. CPUs share it, so only a `Sync` thing can be behind it.
#[derive(Debug)]
#[repr(transparent)]
pub struct SetOnce<T>(AtomicPtr<T>);

impl<T: Sync> SetOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Sets the reference; false if it was set before.
    ///
    /// # Safety
    /// 1. `target` stays in place, and is not borrowed mutably, until the last use of this `SetOnce`.
    #[must_use]
    pub(crate) unsafe fn set(&self, target: &T) -> bool {
        let null = core::ptr::null_mut();
        let target = core::ptr::from_ref(target).cast_mut();
        // ORDERING: Release publishes what is behind the reference; pairs with `get`.
        (self.0)
            .compare_exchange(null, target, CoreOrdering::Release, CoreOrdering::Relaxed)
            .is_ok()
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // ORDERING: see `set`.
        let target = self.0.load(CoreOrdering::Acquire);
        // SAFETY: null, or what `set` was given, which outlives us (its duty 1).
        unsafe { target.as_ref() }
    }
}
