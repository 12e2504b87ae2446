//! Loading roots on this CPU, and dropping what it has cached of the loaded one.

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::CpuState;
use crate::platform::{LocalFlush, Platform};
use crate::tlb::{
    AddressSpace, Asid, FlushRange, FreedTables, Root, Slots, SpaceId, SpaceRoot, TagEntries,
    TlbGen, UserSide, Why,
};
use crate::trace::TraceEvent;

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// The loaded space was not left, but flushes may have passed this CPU by.
    pub(crate) fn drop_missed<const WINDOWS: bool>(
        &self,
        state: &CpuState<N>,
        space: &AddressSpace<N>,
        generation: TlbGen,
    ) {
        let known = state.tlb.generation();
        if known == generation {
            return;
        }
        if self.has_global_tag_loaded(state, space.id())
            && space.taken_run().covers(known, generation)
        {
            return state.tlb.record(generation);
        }
        self.drop_loaded::<WINDOWS>(state);
        state.counters.full_flushes.add(1);
        // I3: the generation was read before the flush.
        state.tlb.record(generation);
    }

    /// Drops everything of the loaded space under its tag, both sides.
    pub(crate) fn drop_loaded<const WINDOWS: bool>(&self, state: &CpuState<N>) {
        if WINDOWS {
            // What it makes up for may have unlinked tables.
            self.copy_top(state, FlushRange::WHOLE);
        }
        self.platform.local_flush(LocalFlush::Space);
        self.note_user_side(state, None);
    }

    /// Drops `range` under the loaded tag, both sides.
    #[inline]
    pub(crate) fn drop_range(&self, state: &CpuState<N>, range: FlushRange, freed: FreedTables) {
        self.platform.local_flush(LocalFlush::Pages(range, freed));
        self.note_user_side(state, Some(range));
    }

    #[inline]
    fn note_user_side(&self, state: &CpuState<N>, range: Option<FlushRange>) {
        if self.flush_user_side(state.tlb.asid(), range) == UserSide::Due {
            state.tlb.set_user_side(UserSide::Due);
        }
    }

    /// Loads a root of a space whose generation, read after the barrier of I2, is `generation`.
    pub(super) fn load<const WINDOWS: bool>(
        &self,
        me: CpuId,
        wanted: &SpaceRoot<'_, N>,
        generation: TlbGen,
    ) {
        let state = self.state(me);
        let slots = self.leave_tag::<WINDOWS>(me);
        let (name, age) = (wanted.name::<WINDOWS>(), wanted.age::<WINDOWS>(generation));
        let global = self.global_tag::<WINDOWS>(wanted);
        let choice = match global {
            None => slots.choose(self.policy(), name, age, &state.tlb.turn),
            Some(asid) => slots.choose_global(self.policy(), asid, name, |known| {
                known == generation || wanted.space.taken_run().covers(known, generation)
            }),
        };
        state.counters.count_tag(choice.why);
        if choice.why == Why::Untagged {
            state.tlb.set_untagged_is_kernel(false);
        }
        state.tlb.begin_load();
        self.platform
            .load_tagged_root(wanted.root::<WINDOWS>(), choice.asid, choice.entries);
        // I3: the generation was read before the load dropped everything older, or is that of the tag.
        state
            .tlb
            .set_loaded(wanted.space.id(), generation, choice.asid);
        self.note_root::<WINDOWS>(state, Some(wanted));
        state.tlb.set_user_side(choice.user);
        if !self.platform.global_tags().is_none() {
            state.tlb.root.set(wanted.root::<WINDOWS>().as_u64());
        }
        if global.is_some() {
            state.lazy.set_tagged(name);
        }
        if choice.entries == TagEntries::Keep && self.platform.flushes_remotely() {
            // Since the generation was read a back end may have flushed this CPU, under the tag that was loaded still.
            self.drop_missed::<WINDOWS>(state, wanted.space, wanted.space.generation());
        }
    }

    /// The global tag of `wanted`, if it is a shared root and the space has one. After the barrier of I2.
    fn global_tag<const WINDOWS: bool>(&self, wanted: &SpaceRoot<'_, N>) -> Option<Asid> {
        let (tags, space) = (self.platform.global_tags(), wanted.space.id());
        if tags.is_none() || wanted.name::<WINDOWS>() != space {
            return None;
        }
        Some(tags.of(space)?.asid)
    }

    /// Loads a root without a user part.
    pub(super) fn load_kernel(&self, me: CpuId, root: Root) {
        match self.is_resident_somewhere(me) {
            false => self.load_kernel_root::<false>(me, root),
            true => self.load_kernel_root::<true>(me, root),
        }
    }

    fn load_kernel_root<const WINDOWS: bool>(&self, me: CpuId, root: Root) {
        let state = self.state(me);
        let slots = self.leave_tag::<WINDOWS>(me);
        let keeps = !slots.is_empty() && state.tlb.untagged_is_kernel();
        let entries = match keeps {
            true => TagEntries::Keep,
            false => TagEntries::Drop,
        };
        state.tlb.begin_load();
        self.platform
            .load_tagged_root(root, Asid::UNTAGGED, entries);
        state.tlb.set_untagged_is_kernel(true);
        state
            .tlb
            .set_loaded(SpaceId::KERNEL, TlbGen::from_raw(0), Asid::UNTAGGED);
        self.note_root::<WINDOWS>(state, None);
        self.settle::<WINDOWS>(state, None);
        self.platform.on_trace(TraceEvent::Switched {
            cpu: me,
            space: SpaceId::KERNEL,
        });
    }

    /// Remembers what the loaded tag holds, before another is loaded.
    pub(super) fn leave_tag<const WINDOWS: bool>(&self, me: CpuId) -> Slots<'_> {
        let slots = self.tag_slots(me);
        let state = self.state(me);
        let tlb = &state.tlb;
        let loaded = tlb.asid();
        if tlb.take_others_void() {
            slots.void_all_but(loaded);
            if loaded != Asid::UNTAGGED {
                tlb.set_untagged_is_kernel(false);
            }
        }
        let name = self.loaded_name::<WINDOWS>(state);
        let age = self.loaded_age::<WINDOWS>(state);
        slots.leave(loaded, name, age, tlb.user_side());
        slots
    }

    /// Voids every tag: this CPU has dropped what all of them held, and what they remember may be of the time before it went
    /// offline.
    pub(crate) fn reset_tags(&self, me: CpuId) {
        self.tag_slots(me).void_all_but(Asid::UNTAGGED);
        self.guest_slots(me).void_all_but(Asid::UNTAGGED);
    }

    pub(super) fn tag_slots(&self, me: CpuId) -> Slots<'_> {
        Slots::new(self.platform.asid_slots(me), self.platform.global_tags())
    }
}
