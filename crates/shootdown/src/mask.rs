//! Sets of CPUs: [`CpuMask`] by value, [`CpuSet`] borrowed without its size.

use core::fmt;

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;

/// A set of CPUs below `N`, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuMask<const N: usize>
where
    Cpus<N>: Capacity,
{
    words: <Cpus<N> as Capacity>::Words,
}

impl<const N: usize> CpuMask<N>
where
    Cpus<N>: Capacity,
{
    /// No CPU.
    pub const EMPTY: Self = Self {
        words: <Cpus<N> as Capacity>::ZERO,
    };

    /// Just `cpu`.
    ///
    /// # Panics
    /// When `cpu` is not below `N`.
    pub fn only(cpu: CpuId) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(cpu);
        mask
    }

    /// CPUs `0..count`.
    ///
    /// # Panics
    /// When `count` exceeds `N`.
    pub fn first(count: usize) -> Self {
        assert!(count <= N, "CpuMask::first({count}) on a mask for {N} CPUs");
        let mut mask = Self::EMPTY;
        for (index, word) in mask.words.as_mut().iter_mut().enumerate() {
            let below = count.saturating_sub(index * 64).min(64);
            *word = if below == 64 {
                u64::MAX
            } else {
                (1 << below) - 1
            };
        }
        mask
    }

    /// Whether `cpu` is in the set; a CPU at or above `N` never is.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.as_set().contains(cpu)
    }

    /// Adds `cpu`; tells whether it was absent.
    ///
    /// # Panics
    /// When `cpu` is not below `N`.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        assert!(cpu.index() < N, "{cpu} in a mask for {N} CPUs");
        let word = &mut self.words.as_mut()[cpu.index() / 64];
        let bit = bit_of(cpu);
        let absent = *word & bit == 0;
        *word |= bit;
        absent
    }

    /// Removes `cpu`; tells whether it was present. A CPU at or above `N` never is.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        if !self.contains(cpu) {
            return false;
        }
        self.words.as_mut()[cpu.index() / 64] &= !bit_of(cpu);
        true
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

    /// Whether there are two or more; cheaper than counting them.
    #[inline]
    pub(crate) fn has_several(&self) -> bool {
        let mut words = self.words.as_ref().iter().filter(|word| **word != 0);
        match (words.next(), words.next()) {
            (Some(only), None) => !only.is_power_of_two(),
            (first, _) => first.is_some(),
        }
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> CpuIter<'_> {
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

    /// The members in ascending order, beginning at `start` and going round past `N`.
    pub(crate) fn iter_from(&self, start: CpuId) -> impl Iterator<Item = CpuId> {
        let (later, earlier) = (self.iter(), self.iter());
        later
            .filter(move |cpu| *cpu >= start)
            .chain(earlier.filter(move |cpu| *cpu < start))
    }

    /// The first member at or after `start`, going round past `N`.
    pub(crate) fn next_from(&self, start: CpuId) -> Option<CpuId> {
        let first = |from: usize| {
            let words = self.words.as_ref();
            let mut index = from / 64;
            let mut word = words.get(index)? & (u64::MAX << (from % 64));
            while word == 0 {
                index += 1;
                word = *words.get(index)?;
            }
            Some(CpuId::from_index(
                index * 64 + word.trailing_zeros() as usize,
            ))
        };
        first(start.index()).or_else(|| first(0))
    }

    /// A borrowed view without the size parameter.
    #[inline]
    pub fn as_set(&self) -> CpuSet<'_> {
        CpuSet {
            words: self.words.as_ref(),
        }
    }

    pub(crate) fn words(&self) -> &[u64] {
        self.words.as_ref()
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        self.words.as_mut()
    }
}

#[inline]
pub(crate) const fn bit_of(cpu: CpuId) -> u64 {
    1 << (cpu.index() % 64)
}

impl<const N: usize> Default for CpuMask<N>
where
    Cpus<N>: Capacity,
{
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> fmt::Debug for CpuMask<N>
where
    Cpus<N>: Capacity,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_set().fmt(f)
    }
}

impl<const N: usize> FromIterator<CpuId> for CpuMask<N>
where
    Cpus<N>: Capacity,
{
    /// # Panics
    /// When a CPU is not below `N`.
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
}

impl<'a> CpuSet<'a> {
    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words
            .get(cpu.index() / 64)
            .is_some_and(|word| word & bit_of(cpu) != 0)
    }

    /// How many CPUs are in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The CPUs in ascending order.
    #[inline]
    pub fn iter(&self) -> CpuIter<'a> {
        CpuIter {
            words: self.words,
            index: 0,
            word: self.words.first().copied().unwrap_or(0),
        }
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

/// Iterates a set of CPUs in ascending order.
#[derive(Clone, Debug)]
pub struct CpuIter<'a> {
    words: &'a [u64],
    index: usize,
    word: u64,
}

impl Iterator for CpuIter<'_> {
    type Item = CpuId;

    #[inline]
    fn next(&mut self) -> Option<CpuId> {
        while self.word == 0 {
            self.index += 1;
            self.word = *self.words.get(self.index)?;
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(CpuId::from_index(self.index * 64 + bit))
    }
}
