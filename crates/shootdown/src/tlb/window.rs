//! Windows: translations that only one CPU can reach, so that flushing them is local (T2).
//!
//! A flag that merely says "only this CPU uses this mapping" is not enough: any CPU that has the page tables loaded may
//! cache a translation that it never asked for. So a window hangs on a page-table root of its CPU alone. That *private
//! root* shares all top-level entries of its space but those that the host keeps for windows; these are empty in the
//! shared root and in everybody else's. Nobody but the CPU ever loads the private root, hence nobody else can translate the
//! window, however far it speculates (I13).
//!
//! What is shared is flushed as ever, whichever of the two roots the CPU has loaded. Three things are added. The CPU is a
//! resident of the space from the first load of its private root until that is retired (`present.rs`). The private root has a
//! name of its own, by which its tag is remembered: what is cached under it is not found under the shared root's tag. And it
//! has copies of the shared top-level entries. Missing ones are found at the next load or fault; but one that was removed must
//! be gone before the table it led to is freed (I4): whoever drops everything, or has been told that tables were freed,
//! copies first.

use core::mem::ManuallyDrop;

use crate::handle::Windows;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::tlb::{AddressSpace, Root, SpaceRoot, WindowRoot};

impl<P: Platform> Windows<'_, P> {
    /// Does what [`Shootdown::switch_to`](crate::Shootdown::switch_to) does, but loads the private root `windows` of this CPU: its windows can be
    /// used from now on, and everything else of `next`. The same space may be loaded by one root, then by the other.
    ///
    /// Context and duties as of `switch_to`; `windows` too must stay alive and its table in place.
    ///
    /// # Panics
    /// As there, and when `windows` is another CPU's or another space's.
    pub fn switch_to(
        self,
        previous: Option<&AddressSpace<P::Cpus>>,
        next: &AddressSpace<P::Cpus>,
        windows: &WindowRoot,
    ) {
        let engine = self.0;
        windows.check_space(next.id(), "loaded for");
        let (_irq, here) = engine.stay();
        windows.check_cpu(here.cpu, "loads");
        let wanted = SpaceRoot {
            space: next,
            windows: Some(windows),
            reach: None,
        };
        engine.switch_windows(here, previous, wanted);
        windows.was_loaded.set(true);
    }

    /// Takes over top-level entries of the shared root that the private one does not have yet. Call it at a page fault
    /// for an address that the shared tables translate; true means that the access may succeed now.
    ///
    /// Context: this CPU has `windows` loaded and the caller does not leave it meanwhile. Does not block.
    ///
    /// # Panics
    /// When `windows` is another CPU's, another space's or another engine's.
    #[track_caller]
    pub fn refresh(self, space: &AddressSpace<P::Cpus>, windows: &WindowRoot) -> bool {
        let engine = self.0;
        engine.check_owner(windows.space);
        let _irq = engine.irq_guard();
        let me = engine.platform.current_cpu();
        windows.check_cpu(me, "refreshes");
        windows.check_space(space.id(), "refreshed for");
        windows.refresh(&engine.platform, space)
    }

    /// Ends a private root and gives its table back: no CPU walks it any more. Frames of its windows are free as well. Does not
    /// block.
    ///
    /// Context: on its CPU, which may have the shared root of `space` loaded; elsewhere use
    /// [`retire_elsewhere`](Self::retire_elsewhere).
    ///
    /// # Panics
    /// On another CPU; when this CPU has the private root loaded, lazily too ([`Shootdown::switch_to`](crate::Shootdown::switch_to) or
    /// [`switch_away`](crate::Shootdown::switch_away) first); when it is another space's or another engine's. Then the table may not be freed.
    #[track_caller]
    pub fn retire(self, space: &AddressSpace<P::Cpus>, windows: WindowRoot) -> Root {
        let engine = self.0;
        // A refusal that unwinds gives nothing back.
        let windows = ManuallyDrop::new(windows);
        let (_irq, here) = engine.stay();
        engine.forbid_in_walk(here);
        windows.check_cpu(here.cpu, "retires");
        self.give_back(space, windows)
    }

    /// As [`retire`](Self::retire), on any CPU, when no CPU runs `space` any more: before it is dropped.
    ///
    /// # Safety
    /// 1. No CPU loads `space` while this runs, or has it loaded, or [walks](crate::user_memory::UserMemory::walk) its tables.
    ///
    /// # Panics
    /// When `windows` is another space's or another engine's, or its CPU has `space` loaded.
    #[track_caller]
    pub unsafe fn retire_elsewhere(
        self,
        space: &AddressSpace<P::Cpus>,
        windows: WindowRoot,
    ) -> Root {
        let engine = self.0;
        let windows = ManuallyDrop::new(windows);
        engine.check_owner(windows.space);
        let is_here = engine.state(windows.cpu).lazy.is_in(space.id());
        assert!(
            !is_here,
            "{} is in the space whose window root is retired elsewhere: do that there",
            windows.cpu
        );
        self.give_back(space, windows)
    }

    #[track_caller]
    fn give_back(
        self,
        space: &AddressSpace<P::Cpus>,
        mut windows: ManuallyDrop<WindowRoot>,
    ) -> Root {
        let engine = self.0;
        engine.check_owner(windows.space);
        let owner = windows.cpu;
        let state = engine.state(owner);
        windows.check_space(space.id(), "retired from");
        assert!(
            state.tlb.private_name() != windows.name,
            "{owner} has the window root loaded that is retired: switch away first"
        );
        // Where the root was never loaded, the CPU may have the shared one: then it is in the set like any other.
        if space.is_resident(owner) {
            space.remove_resident(owner);
            if !state.lazy.is_in(space.id()) {
                // ORDERING: as in `leave`.
                space.cpu_set().remove(owner, Ordering::Release);
            }
        }
        windows.take_root()
    }
}
