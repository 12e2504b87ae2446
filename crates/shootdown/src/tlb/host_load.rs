//! Roots that the host loads itself.
//!
//! *A switch in two halves*, for hosts whose context switch loads the root: between the halves the CPU is in the sets of both spaces, with interrupts
//! off: it may still walk the tables of the one and already those of the other (I2, I4). A flush of either waits for its second half.
//!
//! *A foreign root*, of which the engine knows nothing: firmware, sleep, a trampoline. The CPU runs in no space meanwhile, so no flush of a
//! space concerns it. What it leaves behind lies under tag 0, and is dropped as the kernel's root is loaded again. Flushes of the kernel's
//! part are done there as everywhere, and void the other tags.

use crate::capacity::Capacity;
use crate::engine::Shootdown;
use crate::handle::HostRoots;
use crate::platform::{LocalFlush, Platform};
use crate::sync::{Ordering, fence};
use crate::tlb::switch::not_online;
use crate::tlb::{AddressSpace, Asid, Attention, KernelRoot, SpaceId, SpaceRoot, TlbGen};
use crate::trace::TraceEvent;

impl<P: Platform> HostRoots<'_, P> {
    /// The first half of a switch from `previous` to `next`, either of which may be a root without a user part (`None`). If it returns true, the
    /// host loads the root of `next`, untagged, so that the load drops what the CPU has cached of user memory, and then calls
    /// [`end_switch`](Self::end_switch) with the same spaces, on this CPU but perhaps on another stack. If it returns false, the spaces are
    /// the same, and what [`switch_to`](Shootdown::switch_to) does has been done: there is nothing to load and nothing to end.
    ///
    /// Interrupts are off from before this call until after `end_switch`; in between this CPU does not [poll](Shootdown::poll), take a lock that
    /// does, or flush. Does not block. Everything else, lives of spaces and tables too, is as for `switch_to`.
    ///
    /// # Panics
    /// When `previous` is not what this CPU has loaded; when the CPU is not online; when one of the spaces is another engine's, or has or had windows or CPUs' own roots;
    /// where the platform has [global tags](Platform::global_tags), because the engine alone knows which of them to load.
    #[must_use = "whether the host has to load the root"]
    pub fn begin_switch(
        self,
        previous: Option<&AddressSpace<P::Cpus>>,
        next: Option<&AddressSpace<P::Cpus>>,
    ) -> bool {
        let engine = self.0;
        // They are off already, or the caller is wrong; a flush between two of these lines would be answered as a stray.
        let (_irq, here) = engine.stay();
        let (me, state) = (here.cpu, here.state);
        if name(previous) == name(next) {
            engine.check_host(here, previous);
            if let Some(next) = next {
                engine.switch_to(previous, next);
            }
            return false;
        }
        assert!(
            engine.platform.global_tags().is_none(),
            "the host loads a root itself, but only the engine knows its global tag: use switch_to"
        );
        if let Some(next) = next {
            engine.check_loads(me, next);
        }
        let next_has_windows = P::HAS_WINDOWS && next.is_some_and(AddressSpace::has_residents);
        assert!(
            !next_has_windows
                && !Shootdown::is_resident_somewhere(state)
                && !engine.has_private_loaded(state),
            "the host loads a root itself, but {:?} or what {me} has loaded has private roots, of windows or of regions: use switch_to or switch_away",
            name(next)
        );
        engine.check_host(here, previous);
        engine.leave_tag::<false>(here);
        state.tlb.begin_load();
        state.lazy.set(Attention::Active);
        let mut generation = TlbGen::from_raw(0);
        if let Some(next) = next {
            next.cpu_set().insert(me, Ordering::Relaxed);
            // ORDERING: as in `join` (I2). The load, which drops everything, follows (I3).
            fence(Ordering::SeqCst);
            if P::CONFIG.has_reach && next.is_tracked() {
                engine.join_others(here, &SpaceRoot::shared(next));
            }
            generation = next.generation();
        }
        // From here to `end_switch` no translation of `next` here is older than this generation.
        state.tlb.record(generation);
        state.tlb.root.set(name(next).0);
        state.tlb.set_host(name(previous).being_left());
        true
    }

    /// The second half: the host has loaded the root of `next`. Context as of [`begin_switch`](Self::begin_switch).
    ///
    /// # Safety
    /// 1. Since `begin_switch` returned true, the host has loaded the root of `next` on this CPU (the kernel's, for `None`) under tag 0, and dropped what user memory
    ///    the CPU had cached: the engine lets the tables of `previous` go.
    ///
    /// # Panics
    /// When that was not called on this CPU for these spaces.
    pub unsafe fn end_switch(
        self,
        previous: Option<&AddressSpace<P::Cpus>>,
        next: Option<&AddressSpace<P::Cpus>>,
    ) {
        let engine = self.0;
        let (from, to) = (name(previous), name(next));
        if from == to {
            return;
        }
        let me = engine.platform.current_cpu();
        let tlb = &engine.state(me).tlb;
        assert!(
            tlb.host() == from.being_left() && tlb.root.get() == to.0,
            "{me} ends a switch from {from:?} to {to:?}, and has begun none or another: call both halves for the same spaces, on one CPU"
        );
        tlb.set_untagged(None);
        tlb.user_side_due.set(false);
        tlb.set_loaded(to, tlb.generation(), Asid::UNTAGGED);
        tlb.set_host(to);
        if let Some(previous) = previous {
            engine.leave(previous, me);
        }
        engine
            .platform
            .on_trace(TraceEvent::Switched { cpu: me, space: to });
    }

    /// From here to [`end_foreign_root`](Self::end_foreign_root) the host may load roots of its own on this CPU, under tag 0 or without tags: for calls of
    /// firmware, sleep, a trampoline. The CPU has [left](Shootdown::switch_away) its space, and enters none. Interrupts in any state, but the
    /// caller does not leave this CPU; the engine answers requests meanwhile, so the roots map what contract 11 of [`Platform`] names. Does not block.
    ///
    /// # Panics
    /// When this CPU has a space loaded, lazily too, or has a foreign root already, or is not online.
    pub fn begin_foreign_root(self) {
        let engine = self.0;
        let (_irq, here) = engine.stay();
        engine.check_host(here, None);
        if !engine.is_ready(here.cpu) {
            not_online(here.cpu);
        }
        here.tlb.set_host(SpaceId::FOREIGN);
        here.tlb.set_untagged(None);
    }

    /// Loads `kernel_root`, and drops all that the host's own roots have left, global translations too. Context as of [`begin_foreign_root`](Self::begin_foreign_root).
    ///
    /// # Panics
    /// When that was not called on this CPU.
    pub fn end_foreign_root(self, kernel_root: KernelRoot) {
        let engine = self.0;
        let (_irq, here) = engine.stay();
        engine.forbid_in_walk(here);
        let me = here.cpu;
        assert!(
            here.tlb.host() == SpaceId::FOREIGN,
            "{me} ends a foreign root, and has begun none: call begin_foreign_root before you load it"
        );
        engine.load_kernel(here, kernel_root);
        engine.drop_local(LocalFlush::All);
        here.tlb.set_host(SpaceId::KERNEL);
    }
}

fn name<C: Capacity>(space: Option<&AddressSpace<C>>) -> SpaceId {
    space.map_or(SpaceId::KERNEL, AddressSpace::id)
}
