//! [`AtomicCpuMask`]: a set of CPUs that many CPUs change at once.
//!
//! Single bits change atomically. Several groups are read word by word; callers
//! say at each use why that is enough.

use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::mask::CpuMask;
use crate::sync::{AtomicU64, Ordering, const_fn};

/// A set of CPUs below the capacity that may be changed and read concurrently.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicCpuMask<C: Capacity> {
    words: C::AtomicWords,
}

impl<C: Capacity> AtomicCpuMask<C> {
    const_fn! {
        /// The empty set.
        pub(crate) fn new() -> Self {
            #[cfg(not(loom))]
            let words = C::ATOMIC_ZERO;
            #[cfg(loom)]
            let words = crate::capacity::Array::of(|| AtomicU64::new(0));
            Self { words }
        }
    }

    fn word(&self, cpu: CpuId) -> &AtomicU64 {
        &self.words.as_ref()[C::group(cpu)]
    }

    /// The word of one group.
    pub(crate) fn group(&self, group: usize) -> &AtomicU64 {
        &self.words.as_ref()[group]
    }

    /// Where the bit of `cpu` lies, for hints.
    pub(crate) fn address_of(&self, cpu: CpuId) -> usize {
        core::ptr::from_ref(self.word(cpu)).addr()
    }

    /// Adds `cpu`, which is below the capacity; returns the word of its group as it was before.
    #[inline]
    pub(crate) fn insert(&self, cpu: CpuId, order: Ordering) -> u64 {
        self.word(cpu).fetch_or(C::bit(cpu), order)
    }

    /// Removes `cpu`, which is below the capacity.
    #[inline]
    pub(crate) fn remove(&self, cpu: CpuId, order: Ordering) {
        self.word(cpu).fetch_and(!C::bit(cpu), order);
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub(crate) fn contains(&self, cpu: CpuId, order: Ordering) -> bool {
        self.word(cpu).load(order) & C::bit(cpu) != 0
    }

    /// Whether every word was seen empty, each at its own moment.
    #[inline]
    pub(crate) fn is_empty(&self, order: Ordering) -> bool {
        self.words.as_ref().iter().all(|word| word.load(order) == 0)
    }

    /// The set as it was seen, word by word.
    pub(crate) fn load(&self, order: Ordering) -> CpuMask<C> {
        let mut mask = CpuMask::<C>::EMPTY;
        for (to, from) in mask.words.as_mut().iter_mut().zip(self.words.as_ref()) {
            *to = from.load(order);
        }
        mask
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{AtomicCpuMask, Ordering};
    use crate::cpu::CpuId;

    #[test]
    fn a_set_with_one_member_in_any_word_is_not_empty() {
        let set = AtomicCpuMask::<crate::Cpus<192>>::new();
        assert!(set.is_empty(Ordering::Relaxed));
        for cpu in [0, 63, 64, 130, 191].map(CpuId::new) {
            set.insert(cpu, Ordering::Relaxed);
            assert!(!set.is_empty(Ordering::Relaxed), "{cpu}");
            set.remove(cpu, Ordering::Relaxed);
        }
        assert!(set.is_empty(Ordering::Relaxed));
    }
}
