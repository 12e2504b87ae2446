//! Sets of CPUs: [`CpuMask`] by value, [`CpuSet`] borrowed without its size.

use core::fmt;

use crate::capacity::Capacity;
use crate::cpu::CpuId;

/// A set of CPUs below the capacity, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuMask<C: Capacity> {
    pub(crate) words: C::Words,
}

impl<C: Capacity> CpuMask<C> {
    /// No CPU.
    pub const EMPTY: Self = Self { words: C::ZERO };

    /// Just `cpu`.
    ///
    /// # Panics
    /// When `cpu` is not below the capacity.
    pub fn only(cpu: CpuId) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(cpu);
        mask
    }

    /// CPUs `0..count`.
    ///
    /// # Panics
    /// When `count` exceeds `C::CPUS`.
    pub fn first(count: usize) -> Self {
        (0..count).map(CpuId::from_index).collect()
    }

    /// Whether `cpu` is in the set; a CPU at or above `C::CPUS` never is.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.as_set().contains(cpu)
    }

    /// Adds `cpu`; true if it was absent.
    ///
    /// # Panics
    /// When `cpu` is not below the capacity.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let most = C::CPUS;
        assert!(cpu.index() < most, "{cpu} in a mask for {most} CPUs");
        let word = &mut self.words.as_mut()[C::group(cpu)];
        let bit = C::bit(cpu);
        let absent = *word & bit == 0;
        *word |= bit;
        absent
    }

    /// Removes `cpu`; true if it was present. A CPU at or above `C::CPUS` never is.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let was_present = self.contains(cpu);
        if was_present {
            self.words.as_mut()[C::group(cpu)] &= !C::bit(cpu);
        }
        was_present
    }

    /// Whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.as_ref().iter().all(|word| *word == 0)
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.as_set().len()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + Clone + fmt::Debug + use<'_, C> {
        self.as_set().iter()
    }

    /// Keeps the CPUs that are also in `other`.
    #[inline]
    pub fn intersect(&mut self, other: &Self) {
        for (word, other) in self.words.as_mut().iter_mut().zip(other.words.as_ref()) {
            *word &= other;
        }
    }

    /// Adds the CPUs of `other`.
    #[inline]
    pub fn unite(&mut self, other: &Self) {
        for (word, other) in self.words.as_mut().iter_mut().zip(other.words.as_ref()) {
            *word |= other;
        }
    }

    /// Removes the CPUs of `other`.
    #[inline]
    pub fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.as_mut().iter_mut().zip(other.words.as_ref()) {
            *word &= !other;
        }
    }

    /// A borrowed view without the size parameter.
    #[inline]
    pub fn as_set(&self) -> CpuSet<'_> {
        CpuSet::of::<C>(self.words.as_ref())
    }
}

impl<C: Capacity> Default for CpuMask<C> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<C: Capacity> fmt::Debug for CpuMask<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_set().fmt(f)
    }
}

impl<C: Capacity> FromIterator<CpuId> for CpuMask<C> {
    /// # Panics
    /// When a CPU is not below the capacity.
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut mask = Self::EMPTY;
        for cpu in cpus {
            mask.insert(cpu);
        }
        mask
    }
}

/// A borrowed set of CPUs whose size is not part of its type, as [`Platform`](crate::Platform)
/// methods receive it.
#[derive(Clone, Copy)]
pub struct CpuSet<'a> {
    words: &'a [u64],
    #[cfg(any(loom, feature = "sim"))]
    group_cpus: usize,
}

impl<'a> CpuSet<'a> {
    /// The set of these words of an engine for `C::CPUS` CPUs, of which the last ones may be missing.
    #[inline]
    pub(crate) fn of<C: Capacity>(words: &'a [u64]) -> Self {
        debug_assert!(words.len() <= C::WORDS);
        Self {
            words,
            #[cfg(any(loom, feature = "sim"))]
            group_cpus: C::GROUP_CPUS,
        }
    }

    /// CPUs a word: 64 but in models of several words with few CPUs.
    #[inline]
    fn group_cpus(&self) -> usize {
        #[cfg(any(loom, feature = "sim"))]
        return self.group_cpus;
        #[cfg(not(any(loom, feature = "sim")))]
        return 64;
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (index, cpus) = (cpu.index(), self.group_cpus());
        let word = self.words.get(index / cpus);
        word.is_some_and(|word| word >> (index % cpus) & 1 != 0)
    }

    /// How many CPUs are in the set.
    #[inline]
    pub fn len(&self) -> usize {
        let count = |word: &u64| word.count_ones() as usize;
        self.words.iter().map(count).sum()
    }

    /// Whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The CPUs in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + Clone + fmt::Debug + use<'a> {
        let set = *self;
        // What is left of the group's word.
        let (mut group, mut word) = (0, set.words.first().copied().unwrap_or(0));
        core::iter::from_fn(move || {
            while word == 0 {
                group += 1;
                word = *set.words.get(group)?;
            }
            let lane = word.trailing_zeros() as usize;
            word &= word - 1;
            Some(CpuId::from_index(group * set.group_cpus() + lane))
        })
    }

    /// The bits, CPU 0 in bit 0 of the first word.
    pub fn words(&self) -> &'a [u64] {
        self.words
    }
}

impl fmt::Debug for CpuSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(CpuId::as_u32))
            .finish()
    }
}
