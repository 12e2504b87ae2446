//! [`SharedSet`]: a set of CPUs that many change.

use core::fmt;

use shootdown::shim::{AtomicU64, Ordering};
use shootdown::{Capacity, CpuId, CpuMask};

/// A set of CPUs, one bit each.
pub(crate) struct SharedSet<C: Capacity>(C::AtomicWords);

impl<C: Capacity> fmt::Debug for SharedSet<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSet")
    }
}

impl<C: Capacity> SharedSet<C> {
    pub(crate) const fn new() -> Self {
        Self(C::ATOMIC_ZERO)
    }

    fn words(&self) -> &[AtomicU64] {
        self.0.as_ref()
    }

    pub(crate) fn insert(&self, cpu: CpuId, order: Ordering) {
        self.words()[cpu.index() / 64].fetch_or(bit(cpu), order);
    }

    pub(crate) fn remove(&self, cpu: CpuId, order: Ordering) {
        self.words()[cpu.index() / 64].fetch_and(!bit(cpu), order);
    }

    pub(crate) fn contains(&self, cpu: CpuId, order: Ordering) -> bool {
        self.words()[cpu.index() / 64].load(order) & bit(cpu) != 0
    }

    pub(crate) fn is_empty(&self, order: Ordering) -> bool {
        self.words().iter().all(|word| word.load(order) == 0)
    }

    /// Overwrites it; nobody else changes it meanwhile.
    pub(crate) fn store(&self, mask: &CpuMask<C>, order: Ordering) {
        for (to, from) in self.words().iter().zip(mask.as_set().words()) {
            to.store(*from, order);
        }
    }

    /// The members in ascending order, each word read when its turn comes.
    pub(crate) fn iter(&self, order: Ordering) -> impl Iterator<Item = CpuId> {
        self.words()
            .iter()
            .enumerate()
            .flat_map(move |(index, word)| {
                let mut left = word.load(order);
                core::iter::from_fn(move || {
                    let at = (left != 0).then(|| left.trailing_zeros())?;
                    left &= left - 1;
                    Some(CpuId::new(index as u32 * 64 + at))
                })
            })
    }
}

fn bit(cpu: CpuId) -> u64 {
    1 << (cpu.index() % 64)
}
