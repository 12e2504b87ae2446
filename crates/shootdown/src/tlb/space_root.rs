//! [`SpaceRoot`]: a root of a space, the shared one or a CPU's [private](crate::windows::WindowRoot) one.
//!
//! Without windows none of this runs: switches and flushes are compiled twice, with the parameter `WINDOWS` and without, and one test
//! at the beginning chooses. A platform without windows has neither the second nor the test ([`Platform::HAS_WINDOWS`]).

use crate::capacity::Capacity;
use crate::engine::Shootdown;
use crate::memory::{CpuMemory, Here};
use crate::platform::Platform;
use crate::tlb::{AddressSpace, CpuTlb, FlushRange, ReachRoot, SpaceId, WindowRoot};

/// A root of a space: the shared one, or a CPU's private one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceRoot<'a, C: Capacity> {
    pub(crate) space: &'a AddressSpace<C>,
    /// The private root; `None` for the shared one.
    pub(super) windows: Option<&'a WindowRoot>,
    /// What it belongs to, if it is a CPU's own of a tracked space.
    pub(super) reach: Option<&'a ReachRoot<C>>,
}

impl<'a, C: Capacity> SpaceRoot<'a, C> {
    /// The shared root.
    pub(super) const fn shared(space: &'a AddressSpace<C>) -> Self {
        Self {
            space,
            windows: None,
            reach: None,
        }
    }

    /// By which a tag of this root is remembered.
    pub(crate) fn name<const WINDOWS: bool>(&self) -> SpaceId {
        self.windows::<WINDOWS>()
            .map_or(self.space.id(), |windows| windows.name)
    }

    pub(super) fn windows<const WINDOWS: bool>(&self) -> Option<&'a WindowRoot> {
        self.windows.filter(|_| WINDOWS)
    }

    /// Remembers in `tlb` that this root is loaded, for those that flush it.
    pub(super) fn note(&self, tlb: &CpuTlb) {
        let mut name = SpaceId::KERNEL;
        if let Some(windows) = self.windows {
            tlb.private_root.set(windows.root());
            tlb.shared_root.set(self.space.root());
            tlb.window_changes.set(windows.changes.get());
            name = windows.name;
            let own = self.reach.map_or(core::ptr::null(), core::ptr::from_ref);
            tlb.own_root.set(own.expose_provenance() as u64);
        }
        tlb.private_name.set(name.0);
    }
}

impl<P: Platform> Shootdown<P> {
    /// Whether this CPU has a root loaded of a space where it is a resident, as it is wherever it has a private one. Interrupts
    /// are off.
    pub(super) fn is_resident_somewhere(state: &CpuMemory<P>) -> bool {
        P::HAS_WINDOWS && state.lazy.is_anywhere()
    }

    /// This CPU is about to load a root of `wanted`: says so if it is, or with this root becomes, a resident. Interrupts are off.
    pub(super) fn arrive<const WINDOWS: bool>(
        here: Here<'_, P>,
        wanted: &SpaceRoot<'_, P::Cpus>,
    ) -> Option<SpaceId> {
        let space = wanted.space;
        let is_resident = WINDOWS && space.is_resident(here.cpu);
        let has_windows = wanted.windows::<WINDOWS>().is_some() && wanted.reach.is_none();
        let becomes = has_windows && !is_resident;
        if !is_resident && !becomes {
            return None;
        }
        here.lazy.arrive(space.id());
        if becomes {
            space.add_resident(here.cpu);
        }
        Some(space.id())
    }

    /// By which the loaded tag is remembered.
    pub(crate) fn loaded_name<const WINDOWS: bool>(&self, state: &CpuMemory<P>) -> SpaceId {
        match WINDOWS && self.has_private_loaded(state) {
            true => state.tlb.private_name(),
            false => state.tlb.loaded(),
        }
    }

    /// Copies the shared top-level entries for `range` into the private root, if one is loaded: tables may have been unlinked. Before
    /// the flush, and after the flush was asked for or the generation read.
    pub(crate) fn copy_top(&self, state: &CpuMemory<P>, range: FlushRange) {
        if let Some(root) = self.own_root(state) {
            root.renew(&self.platform, state.tlb.shared_root.get());
            state.counters.tops_copied.add(1);
        } else if self.has_private_loaded(state) {
            let (shared, private) = (state.tlb.shared_root.get(), state.tlb.private_root.get());
            // SAFETY: 1. the private root is loaded, so neither its table nor that of its space is gone.
            unsafe { self.platform.copy_shared_top(shared, private, range) };
            state.counters.tops_copied.add(1);
        }
    }

    /// Whether this CPU has a private root loaded.
    pub(crate) fn has_private_loaded(&self, state: &CpuMemory<P>) -> bool {
        P::HAS_WINDOWS && state.tlb.private_name() != SpaceId::KERNEL
    }
}
