//! Loading roots on this CPU, and dropping what it has cached of the loaded one.

use core::sync::atomic::{Ordering, compiler_fence};

use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::memory::CpuState;
use crate::platform::{LocalFlush, Platform};
use crate::tlb::{
    AddressSpace, Asid, FlushRange, FreedTables, KernelRoot, Slots, SpaceId, SpaceRoot, TagEntries,
    TlbGen, UserSide, Why,
};
use crate::trace::TraceEvent;

impl<P: Platform> Shootdown<P> {
    /// The loaded space was not left, but flushes may have passed this CPU by.
    pub(crate) fn drop_missed<const WINDOWS: bool>(
        &self,
        state: &CpuState<P>,
        space: &AddressSpace<P::Cpus>,
        generation: TlbGen,
    ) {
        let known = state.tlb.generation();
        if known == generation {
            return;
        }
        if self.has_global_tag_loaded(state, space.id())
            && space.tag_run().covers(known, generation)
        {
            return state.tlb.record(generation);
        }
        self.drop_loaded::<WINDOWS>(state);
        state.counters.full_flushes.add(1);
        // I3: the generation was read before the flush.
        state.tlb.record(generation);
    }

    /// Drops everything of the loaded space under its tag, both sides.
    pub(crate) fn drop_loaded<const WINDOWS: bool>(&self, state: &CpuState<P>) {
        if WINDOWS {
            // What it makes up for may have unlinked tables.
            self.copy_top(state, FlushRange::WHOLE);
        }
        self.drop_local(LocalFlush::Space);
        self.note_user_side(state, None);
    }

    /// Has the platform drop translations. Interrupts are off.
    #[inline]
    pub(crate) fn drop_local(&self, operation: LocalFlush) {
        // As in `load_value`: what an NMI-like context reads of this CPU is true before the flush, and after it.
        compiler_fence(Ordering::SeqCst);
        // Other CPUs, or this one, take for dropped what it names.
        let drop = || self.platform.local_flush(operation);
        no_unwind("a flush unwound: what is dropped nobody knows", drop);
        compiler_fence(Ordering::SeqCst);
    }

    /// Drops `range` under the loaded tag, both sides.
    #[inline]
    pub(crate) fn drop_range(&self, state: &CpuState<P>, range: FlushRange, freed: FreedTables) {
        self.drop_local(LocalFlush::Pages(range, freed));
        self.note_user_side(state, Some((range, freed)));
    }

    #[inline]
    fn note_user_side(&self, state: &CpuState<P>, range: Option<(FlushRange, FreedTables)>) {
        if self.flush_user_side(state.tlb.asid(), range) == UserSide::Due {
            state.tlb.set_user_side(UserSide::Due);
        }
    }

    /// Loads a root of a space whose generation, read after the barrier of I2, is `generation`.
    pub(super) fn load<const WINDOWS: bool>(
        &self,
        me: CpuId,
        wanted: &SpaceRoot<'_, P::Cpus>,
        generation: TlbGen,
    ) {
        let state = self.state(me);
        let slots = self.leave_tag::<WINDOWS>(me);
        let (name, age) = (wanted.name::<WINDOWS>(), wanted.age::<WINDOWS>(generation));
        let global = self.global_tag::<WINDOWS>(wanted);
        let choice = match global {
            None => slots.choose(self.policy(), name, age, &state.tlb.turn),
            Some(asid) => slots.choose_global(self.policy(), asid, name, |known| {
                known == generation || wanted.space.tag_run().covers(known, generation)
            }),
        };
        state.counters.count_tag(choice.why);
        if choice.why == Why::Untagged {
            state.tlb.set_untagged(None);
        }
        self.load_value(state, wanted.root::<WINDOWS>(), choice.asid, choice.entries);
        // I3: the generation was read before the load dropped everything older, or is that of the tag.
        state
            .tlb
            .set_loaded(wanted.space.id(), generation, choice.asid);
        self.note_root::<WINDOWS>(state, Some(wanted));
        state.tlb.set_user_side(choice.user);
        if !self.platform.global_tags().is_none() {
            state.tlb.root.set(wanted.root::<WINDOWS>());
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
    fn global_tag<const WINDOWS: bool>(&self, wanted: &SpaceRoot<'_, P::Cpus>) -> Option<Asid> {
        let (tags, space) = (self.platform.global_tags(), wanted.space.id());
        if tags.is_none() || wanted.name::<WINDOWS>() != space {
            return None;
        }
        Some(tags.of(space)?.asid)
    }

    /// Loads a root without a user part.
    pub(super) fn load_kernel(&self, me: CpuId, root: KernelRoot) {
        match self.is_resident_somewhere(me) {
            false => self.load_kernel_root::<false>(me, root),
            true => self.load_kernel_root::<true>(me, root),
        }
    }

    fn load_kernel_root<const WINDOWS: bool>(&self, me: CpuId, root: KernelRoot) {
        let state = self.state(me);
        let slots = self.leave_tag::<WINDOWS>(me);
        let keeps = !slots.is_empty() && state.tlb.is_untagged(root);
        let entries = match keeps {
            true => TagEntries::Keep,
            false => TagEntries::Drop,
        };
        self.load_value(state, root.as_u64(), Asid::UNTAGGED, entries);
        state.tlb.set_untagged(Some(root));
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
                tlb.set_untagged(None);
            }
        }
        let name = self.loaded_name::<WINDOWS>(state);
        let age = self.loaded_age::<WINDOWS>(state);
        slots.leave(loaded, name, age, tlb.user_side());
        slots
    }

    /// Has the platform load a root. From here to the caller's note of it no space is loaded, for NMI-like contexts.
    #[inline]
    pub(super) fn load_value(
        &self,
        state: &CpuState<P>,
        root: u64,
        asid: Asid,
        entries: TagEntries,
    ) {
        state.tlb.begin_load();
        // A platform's instruction need not be a barrier for the compiler.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: 1. the root is that of a space or its windows, which stay until this CPU has left them (their drops see to that), or the kernel's, which stays
        // for ever.
        let load = || unsafe { self.platform.load_tagged_root(root, asid, entries) };
        no_unwind(
            "a load of a root unwound: which one is loaded nobody knows",
            load,
        );
        compiler_fence(Ordering::SeqCst);
    }

    /// Takes all tags over, void: this CPU has dropped what they held. [`Asid::UNTAGGED`] goes on to cache what the host has loaded.
    ///
    /// # Panics
    /// When they are another engine's, on which this CPU is online.
    pub(crate) fn claim_tags(&self, me: CpuId) {
        self.state(me).tlb.set_untagged(None);
        let number = self.number();
        let are_ours = self.tag_slots(me).claim(number) && self.guest_slots(me).claim(number);
        assert!(
            are_ours,
            "{me} has tags of another engine: give each engine slots of its own, or tags to one only"
        );
    }

    /// They may be another engine's now.
    pub(crate) fn give_up_tags(&self, me: CpuId) {
        self.tag_slots(me).give_up();
        self.guest_slots(me).give_up();
    }

    pub(super) fn tag_slots(&self, me: CpuId) -> Slots<'_> {
        Slots::new(self.platform.asid_slots(me), self.platform.global_tags())
    }
}
