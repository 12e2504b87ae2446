//! Loading roots on this CPU, and dropping what it has cached of the loaded one.

use core::sync::atomic::{Ordering, compiler_fence};

use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::memory::{CpuMemory, Here};
use crate::platform::{LocalFlush, Platform};
use crate::tlb::{
    AddressSpace, Asid, FlushRange, FreedTables, KernelRoot, ReachRoot, Slots, SpaceId, SpaceRoot,
    TagEntries, TlbGen,
};
use crate::trace::TraceEvent;

impl<P: Platform> Shootdown<P> {
    /// The loaded space was not left, but flushes may have passed this CPU by.
    pub(crate) fn drop_missed<const WINDOWS: bool>(
        &self,
        state: &CpuMemory<P>,
        space: &AddressSpace<P::Cpus>,
        generation: TlbGen,
    ) {
        let is_tracked = P::CONFIG.has_reach && space.is_tracked();
        let known = state.tlb.generation();
        if known == generation && !(is_tracked && self.has_missed(state, space)) {
            return;
        }
        let has_global_tag = self.tag_of_loaded(state, space.id()) == Some(state.tlb.asid());
        if is_tracked || !has_global_tag || !space.tag_run().covers(known, generation) {
            self.drop_loaded::<WINDOWS>(state);
            state.counters.full_flushes.add(1);
        }
        // I3: the generation was read before the flush.
        state.tlb.record(generation);
    }

    /// Drops everything of the loaded space under its tag, both sides.
    pub(crate) fn drop_loaded<const WINDOWS: bool>(&self, state: &CpuMemory<P>) {
        let own = self.own_root(state).filter(|_| WINDOWS);
        own.inspect(|root| root.read());
        if WINDOWS {
            // What it makes up for may have unlinked tables.
            self.copy_top(state, FlushRange::WHOLE);
        }
        self.drop_local(LocalFlush::Space);
        self.note_user_side(state, None);
        own.inspect(|root| root.record());
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
    pub(crate) fn drop_range(&self, state: &CpuMemory<P>, range: FlushRange, freed: FreedTables) {
        self.drop_local(LocalFlush::Pages(range, freed));
        self.note_user_side(state, Some((range, freed)));
    }

    /// Loads a root of a space whose generation, read after the barrier of I2, is `generation`.
    pub(super) fn load<const WINDOWS: bool>(
        &self,
        here: Here<'_, P>,
        wanted: &SpaceRoot<'_, P::Cpus>,
        generation: TlbGen,
    ) {
        let tlb = &here.tlb;
        let slots = self.leave_tag::<WINDOWS>(here);
        let space = wanted.space;
        let (mut name, mut root, mut age) = (space.id(), space.root(), generation);
        if let Some(windows) = wanted.windows::<WINDOWS>() {
            (name, root) = (windows.name, windows.root());
            let changes = windows.changes.get();
            let own = wanted.reach.filter(|_| P::CONFIG.has_reach);
            age = generation.aged(own.map_or(changes, ReachRoot::fresh_age));
        }
        let global = match name == space.id() {
            true => self.platform.global_tags().of(space.id()),
            // A private root has tags of its own.
            false => None,
        };
        let choice = match global {
            None => slots.choose(self.policy(), name, age, &tlb.turn),
            Some(tag) => slots.choose_global(self.policy(), tag.asid, name, |known| {
                known == generation || space.tag_run().covers(known, generation)
            }),
        };
        here.counters.count_tag(choice.why);
        if choice.asid == Asid::UNTAGGED {
            tlb.set_untagged(None);
        }
        self.load_value(here.state, root, choice.asid, choice.entries);
        // I3: the generation was read before the load dropped everything older, or is that of the tag.
        tlb.set_loaded(space.id(), generation, choice.asid);
        if WINDOWS {
            wanted.note(tlb);
            if P::CONFIG.has_reach {
                wanted.reach.inspect(|root| root.record());
            }
        }
        tlb.user_side_due.set(choice.user_side_due);
        if !self.platform.global_tags().is_none() {
            tlb.root.set(root);
        }
        if global.is_some() {
            here.lazy.set_tagged(name);
        }
        if choice.entries == TagEntries::Keep && self.platform.flushes_remotely() {
            // Since the generation was read a back end may have flushed this CPU, under the tag that was loaded still.
            self.drop_missed::<WINDOWS>(here.state, space, space.generation());
        }
    }

    /// Loads a root without a user part.
    pub(super) fn load_kernel(&self, here: Here<'_, P>, root: KernelRoot) {
        let tlb = &here.tlb;
        let slots = self.leave_tag::<true>(here);
        let entries = match !slots.is_empty() && tlb.is_untagged(root) {
            true => TagEntries::Keep,
            false => TagEntries::Drop,
        };
        self.load_value(here.state, root.as_u64(), Asid::UNTAGGED, entries);
        tlb.set_untagged(Some(root));
        tlb.set_loaded(SpaceId::KERNEL, TlbGen::from_raw(0), Asid::UNTAGGED);
        if P::HAS_WINDOWS {
            tlb.private_name.set(SpaceId::KERNEL.0);
            here.lazy.settle(None);
        }
        self.platform.on_trace(TraceEvent::Switched {
            cpu: here.cpu,
            space: SpaceId::KERNEL,
        });
    }

    /// Remembers what the loaded tag holds, before another is loaded.
    pub(super) fn leave_tag<const WINDOWS: bool>(&self, here: Here<'_, P>) -> Slots<'_> {
        let slots = self.tag_slots(here.cpu);
        let tlb = &here.tlb;
        let loaded = tlb.asid();
        if tlb.others_void.replace(false) {
            slots.void_all_but(loaded);
            if loaded != Asid::UNTAGGED {
                tlb.set_untagged(None);
            }
        }
        let (mut name, mut age) = (tlb.loaded(), tlb.generation());
        if WINDOWS && self.has_private_loaded(here.state) {
            name = tlb.private_name();
            let own = self.own_root(here.state);
            age = age.aged(own.map_or_else(|| tlb.window_changes.get(), ReachRoot::age));
        }
        slots.leave(loaded, name, age, tlb.user_side_due.get());
        slots
    }

    /// Has the platform load a root. From here to the caller's note of it no space is loaded, for NMI-like contexts.
    #[inline]
    pub(super) fn load_value(
        &self,
        state: &CpuMemory<P>,
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
