//! The simulated face: every access is handed to a machine that decides when it happens and what it sees.
//!
//! Feature `sim` is for `shootdown-sim`. Without an installed [`Memory`], or on a thread that is no virtual
//! CPU, everything behaves as on real atomics, so the feature changes no other user of the crate.

use core::sync::atomic::AtomicU64 as CoreU64;

pub use core::sync::atomic::Ordering;

use crate::sync::SetOnce;

/// What an access does to its word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Reads it.
    Load,
    /// Overwrites it.
    Store(u64),
    /// Overwrites it and returns what it was.
    Swap(u64),
    /// Adds to it.
    Add(u64),
    /// Sets bits.
    Or(u64),
    /// Clears the bits that are not given.
    And(u64),
    /// Overwrites it if it has the expected value.
    Replace {
        /// That value.
        expected: u64,
        /// The new one.
        value: u64,
    },
}

impl Operation {
    /// Whether the word may change: the access needs its cache line exclusively.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Load)
    }

    /// Whether it reads and writes in one indivisible step.
    pub const fn is_read_modify_write(self) -> bool {
        !matches!(self, Self::Load | Self::Store(_))
    }

    /// The word's value after the operation.
    pub const fn result(self, before: u64) -> u64 {
        match self {
            Self::Load => before,
            Self::Store(value) | Self::Swap(value) => value,
            Self::Add(amount) => before.wrapping_add(amount),
            Self::Or(bits) => before | bits,
            Self::And(bits) => before & bits,
            Self::Replace { expected, value } if before == expected => value,
            Self::Replace { .. } => before,
        }
    }

    /// Carries it out on real memory; returns the value before (of a store: the value stored).
    pub fn apply(self, cell: &CoreU64, order: Ordering) -> u64 {
        match self {
            Self::Load => cell.load(order),
            Self::Store(value) => {
                cell.store(value, order);
                value
            }
            Self::Swap(value) => cell.swap(value, order),
            Self::Add(amount) => cell.fetch_add(amount, order),
            Self::Or(bits) => cell.fetch_or(bits, order),
            Self::And(bits) => cell.fetch_and(bits, order),
            Self::Replace { expected, value } => {
                let failed = match order {
                    Ordering::Relaxed | Ordering::Release => Ordering::Relaxed,
                    Ordering::Acquire | Ordering::AcqRel => Ordering::Acquire,
                    _ => Ordering::SeqCst,
                };
                cell.compare_exchange(expected, value, order, failed)
                    .unwrap_or_else(|seen| seen)
            }
        }
    }
}

/// A plain access to memory that a protocol makes exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Plain {
    /// Copies it out.
    Read,
    /// Overwrites it.
    Write,
}

/// A simulated memory. The functions are called on every thread that runs the engine; on threads that
/// are no virtual CPU they do what real memory does.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// One atomic access; returns the value before it (of a store: anything).
    pub access: fn(&CoreU64, Operation, Ordering) -> u64,
    /// One fence.
    pub fence: fn(Ordering),
    /// A plain access to the bytes that start at this address, just before it happens.
    pub plain: fn(usize, Plain),
}

static MEMORY: SetOnce<Memory> = SetOnce::new();

/// Makes every engine of this process use `memory` from now on. The first one counts.
pub fn install(memory: &'static Memory) {
    // SAFETY: 1. it is borrowed for ever.
    let _ = unsafe { MEMORY.set(memory) };
}

#[inline]
fn access(cell: &CoreU64, operation: Operation, order: Ordering) -> u64 {
    match MEMORY.get() {
        Some(memory) => (memory.access)(cell, operation, order),
        None => operation.apply(cell, order),
    }
}

/// As `core`'s, seen by the machine.
pub fn fence(order: Ordering) {
    match MEMORY.get() {
        Some(memory) => (memory.fence)(order),
        None => core::sync::atomic::fence(order),
    }
}

pub(crate) fn plain(address: usize, access: Plain) {
    if let Some(memory) = MEMORY.get() {
        (memory.plain)(address, access);
    }
}

/// As `core`'s, seen by the machine. Hosts of a simulation use it for their own shared words (page-table
/// entries, locks).
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicU64(CoreU64);

impl AtomicU64 {
    /// A word with this value.
    pub const fn new(value: u64) -> Self {
        Self(CoreU64::new(value))
    }

    /// As `core`'s.
    #[inline]
    pub fn load(&self, order: Ordering) -> u64 {
        access(&self.0, Operation::Load, order)
    }

    /// As `core`'s.
    #[inline]
    pub fn store(&self, value: u64, order: Ordering) {
        access(&self.0, Operation::Store(value), order);
    }

    /// As `core`'s.
    #[inline]
    pub fn swap(&self, value: u64, order: Ordering) -> u64 {
        access(&self.0, Operation::Swap(value), order)
    }

    /// As `core`'s.
    #[inline]
    pub fn fetch_add(&self, amount: u64, order: Ordering) -> u64 {
        access(&self.0, Operation::Add(amount), order)
    }

    /// As `core`'s.
    #[inline]
    pub fn fetch_sub(&self, amount: u64, order: Ordering) -> u64 {
        access(&self.0, Operation::Add(amount.wrapping_neg()), order)
    }

    /// As `core`'s.
    #[inline]
    pub fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        access(&self.0, Operation::Or(bits), order)
    }

    /// As `core`'s.
    #[inline]
    pub fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        access(&self.0, Operation::And(bits), order)
    }

    /// As `core`'s; a failed exchange is as ordered as a successful one.
    ///
    /// # Errors
    /// The word had another value: which.
    #[inline]
    pub fn compare_exchange(
        &self,
        expected: u64,
        value: u64,
        order: Ordering,
        _failed: Ordering,
    ) -> Result<u64, u64> {
        let seen = access(&self.0, Operation::Replace { expected, value }, order);
        if seen == expected {
            Ok(seen)
        } else {
            Err(seen)
        }
    }

    /// The word itself, for a machine that looks without being seen.
    pub fn as_core(&self) -> &CoreU64 {
        &self.0
    }
}
