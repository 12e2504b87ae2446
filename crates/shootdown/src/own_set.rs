//! [`OwnSet`]: a set of CPUs in one CPU's own memory.
//!
//! Sets by value would be up to 512 bytes on the stack of the caller and of every interrupted task, cleared and copied each time. These
//! lie in the CPU's own memory, and what a use costs follows the groups that have members.

use core::sync::atomic::AtomicU64;

use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::mask::CpuSet;
use crate::sync::OwnWord;

/// A set of CPUs below the capacity that only one CPU uses, with interrupts off.
#[derive(Debug)]
pub(crate) struct OwnSet<C: Capacity> {
    /// The groups that have members, where there are several groups.
    groups: OwnWord,
    words: C::OwnWords,
}

impl<C: Capacity> OwnSet<C> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            groups: OwnWord::new(),
            words: C::OWN_ZERO,
        }
    }

    #[inline]
    fn word(&self, group: usize) -> &OwnWord {
        &self.words.as_ref()[group]
    }

    /// The groups that have members, as bits.
    #[inline]
    fn groups(&self) -> u64 {
        match C::IS_WIDE {
            true => self.groups.get(),
            false => u64::from(self.word(0).get() != 0),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.groups() == 0
    }

    /// Gives a group these members.
    #[inline]
    pub(crate) fn set_group(&self, group: usize, members: u64) {
        self.word(group).set(members);
        if C::IS_WIDE {
            let others = self.groups.get() & !(1 << group);
            self.groups.set(others | u64::from(members != 0) << group);
        }
    }

    /// Adds members to a group.
    #[inline]
    pub(crate) fn add_group(&self, group: usize, members: u64) {
        self.set_group(group, self.word(group).get() | members);
    }

    #[inline]
    pub(crate) fn add(&self, cpu: CpuId) {
        self.add_group(C::group(cpu), C::bit(cpu));
    }

    #[inline]
    pub(crate) fn remove(&self, cpu: CpuId) {
        let group = C::group(cpu);
        let others = self.word(group).get() & !C::bit(cpu);
        self.set_group(group, others);
    }

    /// Keeps the members for which `keeps` is true.
    pub(crate) fn retain(&self, keeps: impl Fn(CpuId) -> bool) {
        for cpu in self.iter().filter(|cpu| !keeps(*cpu)) {
            self.remove(cpu);
        }
    }

    /// Whether `cpu` is in it.
    #[cfg(feature = "sim")]
    pub(crate) fn has(&self, cpu: CpuId) -> bool {
        self.word(C::group(cpu)).get() & C::bit(cpu) != 0
    }

    /// Removes all members.
    #[inline]
    pub(crate) fn clear(&self) {
        if !C::IS_WIDE {
            return self.word(0).set(0);
        }
        for (group, _) in self.groups_from(CpuId::from_index(0)) {
            self.word(group).set(0);
        }
        self.groups.set(0);
    }

    /// The members in ascending order. One that is removed meanwhile may still come.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = CpuId> {
        self.iter_from(CpuId::from_index(0))
    }

    /// The members, beginning in the group of `start`, and in each group in its lane. CPUs that go through the same set at the same
    /// time are each somewhere else, and each member is visited by neighbours one after the other. As [`iter`](Self::iter).
    #[inline]
    pub(crate) fn iter_from(&self, start: CpuId) -> impl Iterator<Item = CpuId> {
        let below = C::bit(start) - 1;
        self.groups_from(start).flat_map(move |(group, word)| {
            ones_from(word, below).map(move |lane| C::cpu(group, lane))
        })
    }

    /// Each group that has members, and these, from the group of `start` on.
    #[inline]
    pub(crate) fn groups_from(&self, start: CpuId) -> impl Iterator<Item = (usize, u64)> + Clone {
        let earlier = (1u64 << C::group(start)) - 1;
        ones_from(self.groups(), earlier)
            .map(|group| (group as usize, self.word(group as usize).get()))
    }

    /// How many members there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.groups_from(CpuId::from_index(0))
            .map(|(_, members)| members.count_ones() as usize)
            .sum()
    }

    /// The only member, if there is exactly one.
    #[inline]
    pub(crate) fn only(&self) -> Option<CpuId> {
        let groups = self.groups();
        if !groups.is_power_of_two() {
            return None;
        }
        let group = groups.trailing_zeros() as usize;
        let members = self.word(group).get();
        (members.is_power_of_two()).then(|| C::cpu(group, members.trailing_zeros()))
    }

    /// The members as the platform sees a set.
    ///
    /// # Safety
    /// 1. The caller is the CPU of this set, has interrupts off, and changes nothing while the result lives.
    pub(crate) unsafe fn as_set(&self) -> CpuSet<'_> {
        let words: *const [OwnWord] = self.words.as_ref();
        const {
            assert!(size_of::<OwnWord>() == size_of::<u64>());
            assert!(align_of::<OwnWord>() == align_of::<AtomicU64>());
        }
        // SAFETY: an OwnWord is an AtomicU64 and nothing else, which has the layout of a u64; duty 1: none of them is written
        // meanwhile.
        let words = unsafe { &*(words as *const [u64]) };
        CpuSet::of::<C>(words)
    }
}

/// The numbers of the bits that are set: first those outside `last`, then those in it, ascending.
#[inline]
pub(crate) fn ones_from(bits: u64, last: u64) -> impl Iterator<Item = u32> + Clone {
    let (mut now, mut later) = (bits & !last, bits & last);
    core::iter::from_fn(move || {
        if now == 0 {
            now = core::mem::take(&mut later);
        }
        let one = (now != 0).then(|| now.trailing_zeros())?;
        now &= now - 1;
        Some(one)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::OwnSet;
    use crate::cpu::CpuId;

    fn set(members: &[u32]) -> OwnSet<crate::Cpus<256>> {
        let set = OwnSet::new();
        for cpu in members {
            set.add_group(*cpu as usize / 64, 1 << (cpu % 64));
        }
        set
    }

    #[test]
    fn members_come_from_anywhere_on_and_each_once() {
        let set = set(&[3, 63, 64, 70, 200]);
        let from = |start| set.iter_from(CpuId::new(start)).map(CpuId::as_u32);
        for (start, order) in [
            (0, [3, 63, 64, 70, 200]),
            (4, [63, 3, 70, 64, 200]),
            (69, [70, 64, 200, 63, 3]),
            (193, [200, 3, 63, 70, 64]),
            (255, [200, 63, 3, 64, 70]),
        ] {
            assert!(
                from(start).eq(order),
                "from {start}: {:?}",
                from(start).collect::<Vec<_>>()
            );
        }
        assert_eq!(
            OwnSet::<crate::Cpus<64>>::new()
                .iter_from(CpuId::new(63))
                .next(),
            None
        );
    }

    #[test]
    fn members_come_and_go() {
        let set = set(&[3, 63, 64, 200]);
        assert_eq!((set.len(), set.only()), (4, None));
        assert!(set.iter().map(CpuId::as_u32).eq([3, 63, 64, 200]));
        for cpu in [3, 64, 200] {
            set.remove(CpuId::new(cpu));
        }
        assert_eq!(set.only(), Some(CpuId::new(63)));
        // SAFETY: 1. there is one thread.
        let seen = unsafe { set.as_set() };
        assert_eq!((seen.len(), seen.contains(CpuId::new(63))), (1, true));
        set.clear();
        assert!(set.is_empty() && set.iter().next().is_none());
        assert_eq!(set.only(), None);
        set.add(CpuId::new(62));
        assert_eq!(
            set.only(),
            Some(CpuId::new(62)),
            "its group is as empty as the set"
        );
    }
}
