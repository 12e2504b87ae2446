//! [`AtomicCpuMask`]: a set of CPUs that many CPUs change at once.
//!
//! Single bits change atomically. Reading a whole set of more than 64 CPUs is word by word; callers
//! say at each use why that is enough.

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::mask::{CpuMask, bit_of};
use crate::sync::{AtomicU64, Ordering, const_fn};

/// A set of CPUs below `N` that may be changed and read concurrently.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicCpuMask<const N: usize>
where
    Cpus<N>: Capacity,
{
    words: <Cpus<N> as Capacity>::AtomicWords,
}

impl<const N: usize> AtomicCpuMask<N>
where
    Cpus<N>: Capacity,
{
    const_fn! {
        /// The empty set.
        #[allow(clippy::new_without_default, reason = "not const under loom")]
        pub fn new() -> Self {
            #[cfg(not(loom))]
            let words = <Cpus<N> as Capacity>::ATOMIC_ZERO;
            #[cfg(loom)]
            let words = <Cpus<N> as Capacity>::atomic_zero();
            Self { words }
        }
    }

    fn word(&self, cpu: CpuId) -> &AtomicU64 {
        &self.words.as_ref()[cpu.index() / 64]
    }

    /// The word of 64 CPUs.
    pub(crate) fn group(&self, group: usize) -> &AtomicU64 {
        &self.words.as_ref()[group]
    }

    /// Where the bit of `cpu` lies, for hints.
    pub(crate) fn address_of(&self, cpu: CpuId) -> usize {
        core::ptr::from_ref(self.word(cpu)).addr()
    }

    /// Adds `cpu`; returns its whole word as it was before.
    ///
    /// # Panics
    /// When `cpu` lies beyond the last word of the set.
    #[inline]
    pub(crate) fn insert(&self, cpu: CpuId, order: Ordering) -> u64 {
        self.word(cpu).fetch_or(bit_of(cpu), order)
    }

    /// Removes `cpu`.
    ///
    /// # Panics
    /// When `cpu` lies beyond the last word of the set.
    #[inline]
    pub(crate) fn remove(&self, cpu: CpuId, order: Ordering) {
        self.word(cpu).fetch_and(!bit_of(cpu), order);
    }

    /// Removes those of the 64 CPUs of `group` whose bits are set in `cpus`.
    pub(crate) fn remove_all(&self, group: usize, cpus: u64, order: Ordering) {
        self.group(group).fetch_and(!cpus, order);
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub(crate) fn contains(&self, cpu: CpuId, order: Ordering) -> bool {
        self.word(cpu).load(order) & bit_of(cpu) != 0
    }

    /// Whether every word was seen empty, each at its own moment.
    #[inline]
    pub(crate) fn is_empty(&self, order: Ordering) -> bool {
        self.words.as_ref().iter().all(|word| word.load(order) == 0)
    }

    /// The set, read word by word.
    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> CpuMask<N> {
        let mut mask = CpuMask::EMPTY;
        for (to, from) in mask.words_mut().iter_mut().zip(self.words.as_ref()) {
            *to = from.load(order);
        }
        mask
    }

    /// Overwrites the set word by word; the caller owns it (an empty pending set).
    #[inline]
    pub(crate) fn store(&self, mask: &CpuMask<N>, order: Ordering) {
        for (to, from) in self.words.as_ref().iter().zip(mask.words()) {
            to.store(*from, order);
        }
    }

    /// Adds every CPU of `mask`, word by word.
    pub(crate) fn unite(&self, mask: &CpuMask<N>, order: Ordering) {
        for (to, from) in self.words.as_ref().iter().zip(mask.words()) {
            if *from != 0 {
                to.fetch_or(*from, order);
            }
        }
    }

    /// The set as it was seen, word by word, for reports.
    pub fn snapshot(&self) -> CpuMask<N> {
        self.load(Ordering::Relaxed)
    }
}
