//! [`PendingSet`]: the targets of a request that have still to acknowledge.
//!
//! With one group it is one word. With several, a word of its own says which groups have targets left: so one load says whether the
//! request is complete, and a request to one CPU costs the same however many CPUs the engine is built for. A group's bit is set
//! before the bits of its CPUs, and cleared by the CPU that clears the last of these.

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::sync::{AtomicU64, Ordering, const_fn};

#[derive(Debug)]
#[repr(C)]
pub(crate) struct PendingSet<C: Capacity> {
    /// The groups that have targets left, where there are several groups.
    groups: C::Wide,
    targets: AtomicCpuMask<C>,
}

impl<C: Capacity> PendingSet<C> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                #[cfg(not(loom))]
                groups: C::WIDE_ZERO,
                #[cfg(loom)]
                groups: crate::capacity::Array::of(|| AtomicU64::new(0)),
                targets: AtomicCpuMask::new(),
            }
        }
    }

    fn groups(&self) -> Option<&AtomicU64> {
        self.groups.as_ref().first()
    }

    /// The line that `target` writes, or the initiator for it.
    pub(crate) fn line_of(&self, target: CpuId) -> usize {
        self.targets.address_of(target)
    }

    /// Whether all targets have acknowledged.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: acquires what every target did before it acknowledged; pairs with `remove`.
        match self.groups() {
            Some(groups) => groups.load(Ordering::Acquire) == 0,
            None => self.targets.is_empty(Ordering::Acquire),
        }
    }

    /// Whether `target` has still to acknowledge. Acquires what the request's initiator wrote before it named the target.
    #[inline]
    pub(crate) fn contains(&self, target: CpuId) -> bool {
        // ORDERING: pairs with `name`.
        self.targets.contains(target, Ordering::Acquire)
    }

    /// Names the targets of a new request: the set is empty, and its slot the caller's. `words` has the bits of each group
    /// that has targets.
    #[inline]
    pub(crate) fn name(&self, words: impl Iterator<Item = (usize, u64)> + Clone) {
        if let Some(groups) = self.groups() {
            let all = words.clone().fold(0, |all, (group, _)| all | 1 << group);
            // A target that finds its bit below sees this too, and clears its group's bit afterwards.
            groups.store(all, Ordering::Relaxed);
        }
        for (group, word) in words {
            // ORDERING: publishes header and contents of the slot; pairs with `contains`, also for a
            // responder that looks here because of another slot's inbox bit.
            self.targets.group(group).store(word, Ordering::Release);
        }
    }

    /// Clears the bits `targets` of a group; only these CPUs do (I6), or the last of their leaf for all of them.
    #[inline]
    pub(crate) fn remove(&self, group: usize, targets: u64) {
        let word = self.targets.group(group);
        // ORDERING: Release publishes what the targets did (and that their copies are complete), Acquire what the others of the
        // group did, for the group's bit; pairs with `is_empty`. As a locked operation it also orders an early
        // acknowledgement before the flush that follows (T1).
        let before = word.fetch_and(!targets, Ordering::AcqRel);
        if before & !targets != 0 {
            return;
        }
        if let Some(groups) = self.groups() {
            // ORDERING: Release: as above, for the whole group; pairs with `is_empty`.
            groups.fetch_and(!(1 << group), Ordering::Release);
        }
    }

    /// The targets of a group that have still to acknowledge, for reports.
    pub(crate) fn of_group(&self, group: usize) -> u64 {
        self.targets.group(group).load(Ordering::Relaxed)
    }
}
