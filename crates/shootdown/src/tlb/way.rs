//! Which root of a space: the shared one, or a CPU's [private](crate::WindowRoot) one; and what a CPU remembers of it.
//!
//! Everything here that a platform without windows would run is behind [`Platform::HAS_WINDOWS`].

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::{CpuState, Shootdown};
use crate::platform::Platform;
use crate::sync::OwnWord;
use crate::tlb::{AddressSpace, FlushRange, Root, SpaceId, TlbGen, WindowRoot};

/// What a CPU remembers of the private root that it has loaded.
#[derive(Debug)]
pub(crate) struct LoadedWindows {
    /// [`SpaceId::KERNEL`] when it has loaded another root.
    name: OwnWord,
    private: OwnWord,
    shared: OwnWord,
    /// How often the windows had changed when the translations here were last known to be none but theirs.
    pub(super) changes: OwnWord,
}

impl LoadedWindows {
    pub(crate) const fn new() -> Self {
        Self {
            name: OwnWord::new(),
            private: OwnWord::new(),
            shared: OwnWord::new(),
            changes: OwnWord::new(),
        }
    }

    pub(super) fn name(&self) -> SpaceId {
        SpaceId::from_raw(self.name.get())
    }

    fn set(&self, windows: &WindowRoot, shared: Root) {
        self.private.set(windows.root().0);
        self.shared.set(shared.0);
        self.changes.set(windows.changes.get());
        self.name.set(windows.name.as_u64());
    }
}

/// A root of a space: the shared one, or a CPU's private one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a, const N: usize>
where
    Cpus<N>: Capacity,
{
    pub(crate) space: &'a AddressSpace<N>,
    windows: Option<&'a WindowRoot>,
}

impl<'a, const N: usize> Way<'a, N>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn private(space: &'a AddressSpace<N>, windows: &'a WindowRoot) -> Self {
        Self {
            space,
            windows: Some(windows),
        }
    }

    pub(crate) fn shared(space: &'a AddressSpace<N>) -> Self {
        Self {
            space,
            windows: None,
        }
    }

    /// By which a tag of this root is remembered.
    pub(crate) fn name(&self) -> SpaceId {
        self.windows.map_or(self.space.id(), |windows| windows.name)
    }

    pub(crate) fn root(&self) -> Root {
        self.windows.map_or(self.space.root(), WindowRoot::root)
    }

    /// How new translations of this root are that are as new as `generation` of the space.
    pub(crate) fn age(&self, generation: TlbGen) -> TlbGen {
        let changes = self.windows.map(|windows| windows.changes.get());
        aged(generation, changes.unwrap_or(0))
    }
}

/// The age of what is cached under a private root: both counts only grow, so their sum is the same only if both are.
fn aged(generation: TlbGen, changes: u64) -> TlbGen {
    TlbGen::from_raw(generation.as_u64().wrapping_add(changes))
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// This CPU is about to load a root of `way`: says so if it is, or with this root becomes, a resident. Interrupts are off.
    pub(crate) fn arrive(&self, me: CpuId, way: &Way<'_, N>) -> Option<SpaceId> {
        let (space, id) = (way.space, way.space.id());
        let is_resident = P::HAS_WINDOWS && space.is_resident(me);
        let becomes = P::HAS_WINDOWS && way.windows.is_some() && !is_resident;
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
    pub(crate) fn settle(&self, state: &CpuState<N>, resident: Option<SpaceId>) {
        if P::HAS_WINDOWS {
            state.lazy.presence.settle(resident);
        }
    }

    /// By which the loaded tag is remembered.
    pub(crate) fn loaded_name(&self, state: &CpuState<N>) -> SpaceId {
        match self.has_windows_loaded(state) {
            true => state.tlb.windows.name(),
            false => state.tlb.loaded(),
        }
    }

    /// How old what the loaded tag holds may be.
    pub(crate) fn loaded_age(&self, state: &CpuState<N>) -> TlbGen {
        let tlb = &state.tlb;
        match self.has_windows_loaded(state) {
            true => aged(tlb.generation(), tlb.windows.changes.get()),
            false => tlb.generation(),
        }
    }

    /// What the loaded root is, for those that flush it. Interrupts are off.
    pub(crate) fn note_way(&self, state: &CpuState<N>, way: Option<&Way<'_, N>>) {
        if !P::HAS_WINDOWS {
            return;
        }
        let loaded = &state.tlb.windows;
        match way.and_then(|way| way.windows.map(|windows| (windows, way.space.root()))) {
            Some((windows, shared)) => loaded.set(windows, shared),
            None => loaded.name.set(SpaceId::KERNEL.as_u64()),
        }
    }

    /// The private root of `way`, if it is one, has all that was in the shared one before the caller read the generation.
    pub(crate) fn refresh_way(&self, way: &Way<'_, N>) {
        if let Some(windows) = way.windows.filter(|_| P::HAS_WINDOWS) {
            windows.refresh(&self.platform, way.space);
        }
    }

    /// Copies the shared top-level entries for `range` into the private root, if one is loaded: tables may have been unlinked. Before
    /// the flush, and after the flush was asked for or the generation read.
    pub(crate) fn copy_top(&self, state: &CpuState<N>, range: FlushRange) {
        if self.has_windows_loaded(state) {
            let loaded = &state.tlb.windows;
            let (shared, private) = (Root(loaded.shared.get()), Root(loaded.private.get()));
            self.platform.copy_shared_top(shared, private, range);
            state.counters.tops_copied.add(1);
        }
    }

    fn has_windows_loaded(&self, state: &CpuState<N>) -> bool {
        P::HAS_WINDOWS && state.tlb.windows.name() != SpaceId::KERNEL
    }
}
