//! Choosing whom a flush interrupts: the CPUs in the space's set that are online, but those that need not be told.

use crate::capacity::Capacity;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::tlb::{AddressSpace, Attention, FlushRequest};

impl<P: Platform> Shootdown<P> {
    /// Adds to `holders` the CPUs that may hold translations of `space`, this one too. After the barrier that follows the page-table change, with interrupts
    /// off.
    pub(super) fn add_holders(
        &self,
        here: Here<'_, P>,
        space: &AddressSpace<P::Cpus>,
        holders: &mut CpuMask<P::Cpus>,
    ) {
        for group in self.groups() {
            // ORDERING: as in `find_targets`.
            let wanted = space.cpu_set().group(group).load(Ordering::Acquire);
            holders.words.as_mut()[group] |= self.present(here, group, wanted, space);
        }
    }

    /// The CPUs of the space's set whose mark says so. After a barrier. Those that have left it are done with the space.
    pub(crate) fn holders_that(
        &self,
        space: &AddressSpace<P::Cpus>,
        says: impl Fn(Attention) -> bool,
    ) -> CpuMask<P::Cpus> {
        let mut found = CpuMask::EMPTY;
        for group in self.groups() {
            // ORDERING: Acquire: who has left the set has used the space for the last time; pairs with `leave` and the end of a section.
            let holders = space.cpu_set().group(group).load(Ordering::Acquire);
            for lane in ones_from(holders, 0) {
                let cpu = P::Cpus::cpu(group, lane);
                if says(self.state(cpu).lazy.get()) {
                    found.insert(cpu);
                }
            }
        }
        found
    }

    /// Puts the other CPUs that `request` has to reach into this CPU's set `targets`: holders of `space`, those of many spaces, or all that are online where it is about
    /// the kernel's part. After the barrier that follows the page-table change, with interrupts off.
    pub(super) fn find_targets(
        &self,
        here: Here<'_, P>,
        request: &FlushRequest,
        space: Option<&AddressSpace<P::Cpus>>,
        holders: Option<&CpuMask<P::Cpus>>,
    ) {
        let (me, targets) = (here.cpu, &here.targets);
        let holders = holders.filter(|_| P::CONFIG.has_reclaim);
        targets.clear();
        for group in self.groups() {
            let mut wanted = match (space, holders) {
                (Some(space), _) if P::CONFIG.has_reach && request.space.is_region() => {
                    self.holders_of_region(here, request, space, group)
                }
                // ORDERING: Acquire sees the root switch of a CPU that has left; pairs with `leave`.
                (Some(space), _) => space.cpu_set().group(group).load(Ordering::Acquire),
                (None, Some(holders)) => holders.words.as_ref()[group],
                (None, None) => u64::MAX,
            };
            if group == P::Cpus::group(me) {
                wanted &= !P::Cpus::bit(me);
            }
            if let Some(space) = space {
                self.forget_dead(here, space, group, wanted);
                wanted = self.present(here, group, wanted, space);
            }
            if wanted != 0 {
                // A CPU may have gone offline. ORDERING: as in `ready_cpus`.
                wanted &= self.ready.0.group(group).load(Ordering::Acquire);
                targets.set_group(group, wanted);
            }
        }
        if let Some(space) = space.filter(|_| !targets.is_empty()) {
            // In transition each CPU has to load the space again.
            let tag = self.platform.global_tags().of(space.id());
            let in_transition = tag.is_some_and(|tag| !tag.is_settled);
            self.spare(here, request.must_reach_all() || in_transition);
        } else if holders.is_some() {
            self.spare(here, false);
        }
        self.spare_quiet(here, request);
    }

    /// A group's `holders` without those that are elsewhere.
    #[inline(always)]
    fn present(
        &self,
        here: Here<'_, P>,
        group: usize,
        holders: u64,
        space: &AddressSpace<P::Cpus>,
    ) -> u64 {
        match P::HAS_WINDOWS && holders != 0 && space.has_residents() {
            true => holders & !self.absent(here, group, holders, space),
            false => holders,
        }
    }

    /// Those of a group's `holders` that are residents and elsewhere: they compare generations when they come back.
    #[cold]
    #[inline(never)]
    fn absent(
        &self,
        here: Here<'_, P>,
        group: usize,
        holders: u64,
        space: &AddressSpace<P::Cpus>,
    ) -> u64 {
        let is_absent = |lane: &u32| {
            let cpu = P::Cpus::cpu(group, *lane);
            let mark = &self.state(cpu).lazy;
            // It may walk tables where it is not.
            !(mark.is_in(space.id()) || P::CONFIG.has_walks && mark.get() == Attention::Walking)
        };
        let residents = ones_from(space.residents_of(group) & holders, 0);
        let absent = (residents.filter(is_absent)).fold(0u64, |absent, lane| absent | 1 << lane);
        let count = u64::from(absent.count_ones());
        here.counters.absent_skipped.add(count);
        absent
    }

    /// Takes those out of this CPU's set `targets` that will look before they use the space again.
    fn spare(&self, here: Here<'_, P>, must_reach_all: bool) {
        let policy = self.policy();
        if !policy.is_lazy() && !policy.defers() {
            return;
        }
        let (mut lazy, mut deferring) = (0, 0);
        for cpu in here.targets.iter() {
            let attention = self.state(cpu).lazy.get();
            if !attention.skips(must_reach_all) {
                continue;
            }
            match attention {
                Attention::Deferring => deferring += 1,
                _ => lazy += 1,
            }
            here.targets.remove(cpu);
        }
        here.counters.lazy_skipped.add(lazy);
        here.counters.deferring_skipped.add(deferring);
    }
}
