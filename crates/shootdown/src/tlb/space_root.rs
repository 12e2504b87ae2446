//! [`SpaceRoot`]: a root of a space, the shared one or a CPU's [private](crate::windows::WindowRoot) one.
//!
//! Without windows none of this runs: switches and flushes are compiled twice, with the parameter `WINDOWS` and without, and one test
//! at the beginning chooses. A platform without windows has neither the second nor the test ([`Platform::HAS_WINDOWS`]).

use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::CpuState;
use crate::platform::Platform;
use crate::tlb::{AddressSpace, FlushRange, SpaceId, TlbGen, WindowRoot};

/// A root of a space: the shared one, or a CPU's private one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceRoot<'a, C: Capacity> {
    pub(crate) space: &'a AddressSpace<C>,
    windows: Option<&'a WindowRoot>,
}

impl<'a, C: Capacity> SpaceRoot<'a, C> {
    pub(crate) fn private(space: &'a AddressSpace<C>, windows: &'a WindowRoot) -> Self {
        Self {
            space,
            windows: Some(windows),
        }
    }

    pub(crate) fn shared(space: &'a AddressSpace<C>) -> Self {
        Self {
            space,
            windows: None,
        }
    }

    /// By which a tag of this root is remembered.
    pub(crate) fn name<const WINDOWS: bool>(&self) -> SpaceId {
        self.windows::<WINDOWS>()
            .map_or(self.space.id(), |windows| windows.name)
    }

    pub(crate) fn root<const WINDOWS: bool>(&self) -> u64 {
        self.windows::<WINDOWS>()
            .map_or(self.space.root(), WindowRoot::root)
    }

    /// How new translations of this root are that are as new as `generation` of the space.
    pub(crate) fn age<const WINDOWS: bool>(&self, generation: TlbGen) -> TlbGen {
        match self.windows::<WINDOWS>() {
            Some(windows) => aged(generation, windows.changes.get()),
            None => generation,
        }
    }

    fn windows<const WINDOWS: bool>(&self) -> Option<&'a WindowRoot> {
        self.windows.filter(|_| WINDOWS)
    }
}

/// The age of what is cached under a private root: both counts only grow, so their sum is the same only if both are.
fn aged(generation: TlbGen, changes: u64) -> TlbGen {
    TlbGen::from_raw(generation.as_u64().wrapping_add(changes))
}

impl<P: Platform> Shootdown<P> {
    /// Whether a switch to the shared root of `next` concerns windows: some CPU is a resident there, or this one is in what
    /// it has loaded. Interrupts are off.
    #[inline]
    pub(crate) fn meets_windows(&self, me: CpuId, next: &AddressSpace<P::Cpus>) -> bool {
        // One branch: both words are on lines that a switch reads anyway.
        P::HAS_WINDOWS && next.has_residents() | self.is_resident_somewhere(me)
    }

    /// Whether this CPU has a root loaded of a space where it is a resident, as it is wherever it has a private one. Interrupts
    /// are off.
    pub(crate) fn is_resident_somewhere(&self, me: CpuId) -> bool {
        P::HAS_WINDOWS && self.state(me).lazy.presence.is_anywhere()
    }

    /// This CPU is about to load a root of `wanted`: says so if it is, or with this root becomes, a resident. Interrupts are off.
    pub(crate) fn arrive<const WINDOWS: bool>(
        &self,
        me: CpuId,
        wanted: &SpaceRoot<'_, P::Cpus>,
    ) -> Option<SpaceId> {
        let (space, id) = (wanted.space, wanted.space.id());
        let is_resident = WINDOWS && space.is_resident(me);
        let becomes = wanted.windows::<WINDOWS>().is_some() && !is_resident;
        if !is_resident && !becomes {
            return None;
        }
        self.state(me).lazy.presence.arrive(id);
        if becomes {
            space.add_resident(me);
        }
        Some(id)
    }

    /// This CPU has loaded a root, of a space where it is a resident or not. Interrupts are off.
    pub(crate) fn settle<const WINDOWS: bool>(
        &self,
        state: &CpuState<P>,
        resident: Option<SpaceId>,
    ) {
        if WINDOWS {
            state.lazy.presence.settle(resident);
        }
    }

    /// By which the loaded tag is remembered.
    pub(crate) fn loaded_name<const WINDOWS: bool>(&self, state: &CpuState<P>) -> SpaceId {
        match WINDOWS && self.has_private_loaded(state) {
            true => state.tlb.windows.name(),
            false => state.tlb.loaded(),
        }
    }

    /// How old what the loaded tag holds may be.
    pub(crate) fn loaded_age<const WINDOWS: bool>(&self, state: &CpuState<P>) -> TlbGen {
        let tlb = &state.tlb;
        match WINDOWS && self.has_private_loaded(state) {
            true => aged(tlb.generation(), tlb.windows.changes.get()),
            false => tlb.generation(),
        }
    }

    /// What the loaded root is, for those that flush it. Interrupts are off.
    pub(crate) fn note_root<const WINDOWS: bool>(
        &self,
        state: &CpuState<P>,
        wanted: Option<&SpaceRoot<'_, P::Cpus>>,
    ) {
        if !WINDOWS {
            return;
        }
        let loaded = &state.tlb.windows;
        match wanted.and_then(|wanted| wanted.windows.map(|windows| (windows, wanted.space.root())))
        {
            Some((windows, shared)) => {
                loaded.private.set(windows.root());
                loaded.shared.set(shared);
                loaded.changes.set(windows.changes.get());
                loaded.name.set(windows.name.raw());
            }
            None => loaded.name.set(SpaceId::KERNEL.raw()),
        }
    }

    /// The private root of `wanted`, if it is one, has all that was in the shared one before the caller read the generation.
    pub(crate) fn refresh_root<const WINDOWS: bool>(&self, wanted: &SpaceRoot<'_, P::Cpus>) {
        if let Some(windows) = wanted.windows::<WINDOWS>() {
            windows.refresh(&self.platform, wanted.space);
        }
    }

    /// Copies the shared top-level entries for `range` into the private root, if one is loaded: tables may have been unlinked. Before
    /// the flush, and after the flush was asked for or the generation read.
    pub(crate) fn copy_top(&self, state: &CpuState<P>, range: FlushRange) {
        if self.has_private_loaded(state) {
            let loaded = &state.tlb.windows;
            let (shared, private) = (loaded.shared.get(), loaded.private.get());
            // SAFETY: 1. the private root is loaded, so neither its table nor that of its space is gone.
            unsafe { self.platform.copy_shared_top(shared, private, range) };
            state.counters.tops_copied.add(1);
        }
    }

    /// Whether this CPU has a private root loaded.
    pub(crate) fn has_private_loaded(&self, state: &CpuState<P>) -> bool {
        P::HAS_WINDOWS && state.tlb.windows.name() != SpaceId::KERNEL
    }
}
