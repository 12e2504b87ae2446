//! The set of CPUs that a thread may run on, changeable while others look at it.

use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::{CpuId, CpuMask};

use crate::cpus::{Cpus, MAX_CPUS};

const _: () = assert!(MAX_CPUS <= 64, "affinity is one word");

/// A CPU mask of one atomic word.
#[derive(Debug)]
pub(super) struct Affinity(AtomicU64);

impl Affinity {
    /// Every CPU there may ever be.
    pub const fn all() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// The same set as `other` has now.
    pub fn copy_of(other: &Self) -> Self {
        Self(AtomicU64::new(other.bits()))
    }

    /// May the thread run there?
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.bits() & (1 << cpu.index()) != 0
    }

    /// The CPUs as the bits of a word, lowest first.
    pub fn bits(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Every CPU there may ever be, from now on.
    pub fn widen(&self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }

    /// Replaces the set.
    pub fn set(&self, mask: &CpuMask<Cpus>) {
        let bits = mask.iter().fold(0u64, |bits, cpu| bits | 1 << cpu.index());
        self.0.store(bits, Ordering::Relaxed);
    }
}
