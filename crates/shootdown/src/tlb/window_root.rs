//! [`WindowRoot`]: a page-table root that one CPU alone loads.

use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::platform::Platform;
use crate::sync::{OwnFlag, OwnWord};
use crate::tlb::{AddressSpace, FlushRange, Root, SpaceId};

/// The private root of one CPU in one space. The table is the host's.
///
/// It stays valid while its CPU runs other spaces or is offline. [`Windows::retire`](crate::windows::Windows::retire) gives the table back.
///
/// One that was loaded and is dropped without that panics, as an [`AddressSpace`] that is loaded: the table would be freed under a CPU
/// that walks it. The panic does not unwind.
#[derive(Debug)]
#[must_use = "give it to `Windows::retire` before its table is freed"]
pub struct WindowRoot {
    pub(super) space: SpaceId,
    /// By which its tag is remembered.
    pub(super) name: SpaceId,
    pub(super) cpu: CpuId,
    root: Root,
    /// Since its first load its CPU may walk the table. Its CPU's own.
    pub(super) was_loaded: OwnFlag,
    /// How often its windows have changed. Its CPU's own.
    pub(super) changes: OwnWord,
    /// The shared top-level entries that it has are those of this count or newer. Its CPU's own.
    top_seen: OwnWord,
}

impl WindowRoot {
    /// The private root of `cpu` in `space`, where it has no other: a table whose shared top-level entries may still be empty. Any context; does
    /// not block. Nothing loads it before [`Windows::switch_to`](crate::windows::Windows::switch_to) does.
    ///
    /// # Panics
    /// When the platform has [no windows](Platform::HAS_WINDOWS).
    pub fn new<P: Platform>(
        engine: &Shootdown<P>,
        space: &AddressSpace<P::Cpus>,
        cpu: CpuId,
        root: Root,
    ) -> Self {
        engine.check_owner(space.id());
        assert!(
            P::HAS_WINDOWS,
            "a window root on a platform without windows: provide copy_shared_top and set HAS_WINDOWS"
        );
        Self {
            space: space.id(),
            name: engine.fresh_space_id(),
            cpu,
            root,
            was_loaded: OwnFlag::new(),
            changes: OwnWord::new(),
            top_seen: OwnWord::new(),
        }
    }

    /// The only CPU that can reach its windows.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The value of the private root.
    pub fn root(&self) -> u64 {
        self.root.as_u64()
    }

    /// The space that it belongs to.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Checks that it belongs to the space `asked`. The message says what it `is_used` for: "loaded for".
    #[track_caller]
    pub(super) fn check_space(&self, asked: SpaceId, is_used: &str) {
        let own = self.space;
        assert!(
            own == asked,
            "the window root of {own:?} is {is_used} {asked:?}"
        );
    }

    /// Checks that it belongs to the CPU `me`. The message says how that CPU `uses` it: "loads".
    #[track_caller]
    pub(super) fn check_cpu(&self, me: CpuId, uses: &str) {
        let owner = self.cpu;
        assert!(
            owner == me,
            "{me} {uses} the window root of {owner}: do that there"
        );
    }

    /// No CPU walks the table any more.
    pub(super) fn take_root(&mut self) -> Root {
        self.was_loaded.set(false);
        core::mem::replace(&mut self.root, Root::NONE)
    }

    /// Whether a shared top-level entry has changed since it was asked last. Read before the entries: one that changes meanwhile is found again next time.
    pub(super) fn sees_top<C: Capacity>(&self, space: &AddressSpace<C>) -> bool {
        let top = space.top();
        self.top_seen.get() != top && {
            self.top_seen.set(top);
            true
        }
    }

    /// Takes over the shared top-level entries if any has changed since; true if so. On its CPU, interrupts off.
    pub(super) fn refresh<P: Platform>(&self, platform: &P, space: &AddressSpace<P::Cpus>) -> bool {
        let is_behind = self.sees_top(space);
        if is_behind {
            // SAFETY: 1. both are borrowed, and so their tables are in place.
            unsafe { platform.copy_shared_top(space.root(), self.root(), FlushRange::WHOLE) };
        }
        is_behind
    }
}

impl Drop for WindowRoot {
    /// # Panics
    /// When the root was loaded and has not been retired.
    fn drop(&mut self) {
        if self.was_loaded.get() {
            no_unwind(
                "a window root that its CPU may have loaded is not dropped",
                || {
                    panic!(
                        "window root dropped, and its CPU may have it loaded: call Windows::retire"
                    )
                },
            );
        }
    }
}
