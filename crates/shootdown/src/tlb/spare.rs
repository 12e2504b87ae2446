//! Choosing whom a flush interrupts: the CPUs in the space's set that are online, but those that need not be told.

use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::tlb::{AddressSpace, Attention, FreedTables};

impl<P: Platform> Shootdown<P> {
    /// Puts the CPUs that a flush of `space` has to reach into this CPU's set `targets`. After the barrier that follows the
    /// page-table change, with interrupts off.
    pub(super) fn find_holders(
        &self,
        me: CpuId,
        space: &AddressSpace<P::Cpus>,
        freed: FreedTables,
    ) {
        let targets = &self.state(me).targets;
        targets.clear();
        for group in self.groups() {
            // ORDERING: Acquire sees the root switch of a CPU that has left; pairs with `leave`.
            let mut holders = space.cpu_set().group(group).load(Ordering::Acquire);
            if group == P::Cpus::group(me) {
                holders &= !P::Cpus::bit(me);
            }
            if P::HAS_WINDOWS && holders != 0 && space.has_residents() {
                holders &= !self.absent(group, holders, space);
            }
            if holders != 0 {
                // A CPU may have gone offline. ORDERING: as in `ready_cpus`.
                holders &= self.ready.0.group(group).load(Ordering::Acquire);
                targets.set_group(group, holders);
            }
        }
        if !targets.is_empty() {
            self.spare(me, self.spares(space, freed));
        }
    }

    /// Puts all other CPUs that are online into this CPU's set `targets`. As [`find_holders`](Self::find_holders).
    pub(super) fn find_others(&self, me: CpuId) {
        let targets = &self.state(me).targets;
        targets.clear();
        for group in self.groups() {
            // ORDERING: as in `ready_cpus`.
            let mut ready = self.ready.0.group(group).load(Ordering::Acquire);
            if group == P::Cpus::group(me) {
                ready &= !P::Cpus::bit(me);
            }
            targets.set_group(group, ready);
        }
    }

    /// Those of a group's `holders` that are residents and elsewhere: they compare generations when they come back.
    #[cold]
    #[inline(never)]
    fn absent(&self, group: usize, holders: u64, space: &AddressSpace<P::Cpus>) -> u64 {
        let mut absent = 0u64;
        for lane in ones_from(space.residents_of(group) & holders, 0) {
            let cpu = P::Cpus::cpu(group, lane);
            if !self.state(cpu).lazy.presence.is_in(space.id()) {
                absent |= 1 << lane;
            }
        }
        let me = self.platform.current_cpu();
        let counter = &self.state(me).counters.absent_skipped;
        counter.add(u64::from(absent.count_ones()));
        absent
    }

    /// Takes those out of this CPU's set `targets` that will look before they use the space again.
    fn spare(&self, me: CpuId, freed: FreedTables) {
        let policy = self.policy();
        if !policy.is_lazy() && !policy.defers() {
            return;
        }
        let state = self.state(me);
        let (mut lazy, mut deferring) = (0, 0);
        for cpu in state.targets.iter() {
            let attention = self.state(cpu).lazy.get();
            if !attention.skips(freed) {
                continue;
            }
            match attention {
                Attention::Deferring => deferring += 1,
                _ => lazy += 1,
            }
            state.targets.remove(cpu);
        }
        state.counters.lazy_skipped.add(lazy);
        state.counters.deferring_skipped.add(deferring);
    }
}
