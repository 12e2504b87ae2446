//! [`CpuTlb`]: what one CPU has loaded, and which translations it may still hold.

use crate::sync::{AtomicBool, AtomicU64, Ordering, OwnWord, const_fn};
use crate::tlb::{Asid, LoadedWindows, Root, SpaceId, TlbGen, UserSide};

/// What one CPU's TLB may hold. Written by its CPU alone, with interrupts off.
#[derive(Debug)]
pub(crate) struct CpuTlb {
    /// The loaded space; [`SpaceId::KERNEL`] for a root without a user part.
    loaded: AtomicU64,
    /// No translation of the loaded space here is older than this generation (I3).
    generation: AtomicU64,
    /// A flush that was acknowledged, or that passed the lazy CPU by, has yet to be done: user memory must not be
    /// touched on this CPU.
    owes_flush: AtomicBool,
    /// The tag of the loaded root.
    asid: OwnWord,
    /// Whether the user side of the tag missed a flush.
    user_side_due: OwnWord,
    /// The space that the host has not left: the loaded one, or the one that the CPU was lazy in when it had to
    /// let go.
    host: OwnWord,
    /// The root to load when a lazy CPU has to let go.
    lazy_root: OwnWord,
    /// See [`newest`](Self::newest); 0 while no responder looks.
    newest: OwnWord,
    /// Whose turn it is to lose a tag.
    pub(crate) turn: OwnWord,
    /// A kernel range was flushed under the loaded tag only: the others must be dropped before they are used.
    others_void: OwnWord,
    /// [`Asid::UNTAGGED`] holds nothing but translations of the kernel's part, none of them void.
    untagged_is_kernel: OwnWord,
    /// The loaded root, if it is a private one.
    pub(crate) windows: LoadedWindows,
}

impl CpuTlb {
    const_fn! {
        #[inline]
        pub(crate) fn new() -> Self {
            Self {
                loaded: AtomicU64::new(0),
                generation: AtomicU64::new(0),
                owes_flush: AtomicBool::new(false),
                asid: OwnWord::new(),
                user_side_due: OwnWord::new(),
                host: OwnWord::new(),
                lazy_root: OwnWord::new(),
                newest: OwnWord::new(),
                turn: OwnWord::new(),
                others_void: OwnWord::new(),
                untagged_is_kernel: OwnWord::new(),
                windows: LoadedWindows::new(),
            }
        }
    }

    #[inline]
    pub(crate) fn loaded(&self) -> SpaceId {
        SpaceId::from_raw(self.loaded.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn generation(&self) -> TlbGen {
        TlbGen::from_raw(self.generation.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn asid(&self) -> Asid {
        Asid::new(self.asid.get() as u16)
    }

    #[inline]
    pub(crate) fn set_loaded(&self, space: SpaceId, generation: TlbGen, asid: Asid) {
        // Others must not take the last space's generation for this one's (`has_reached`).
        self.generation.store(0, Ordering::Relaxed);
        // ORDERING: Release: who sees the new space sees no generation of the old one; pairs with `has_reached`.
        self.loaded.store(space.as_u64(), Ordering::Release);
        self.asid.set(u64::from(asid.as_u16()));
        self.record(generation);
    }

    #[inline]
    pub(crate) fn record(&self, generation: TlbGen) {
        // ORDERING: Release publishes that what is older has been dropped; pairs with `has_reached`.
        self.generation
            .store(generation.as_u64(), Ordering::Release);
    }

    /// Whether this CPU, seen from another, has dropped everything of `space` that is older than `generation`. Called after
    /// the barrier that follows the page-table change.
    #[inline]
    pub(crate) fn has_reached(&self, space: SpaceId, generation: TlbGen) -> bool {
        // ORDERING: Acquire: see `set_loaded`. If the CPU leaves the space between the two loads, it has left its
        // translations too, and compares generations when it comes back.
        self.loaded.load(Ordering::Acquire) == space.as_u64()
            // ORDERING: Acquire: pairs with `record`.
            && self.generation.load(Ordering::Acquire) >= generation.as_u64()
    }

    /// The newest change of the loaded space that was asked for before the responder began to flush.
    #[inline]
    pub(crate) fn newest(&self) -> TlbGen {
        TlbGen::from_raw(self.newest.get())
    }

    #[inline]
    pub(crate) fn set_newest(&self, generation: TlbGen) {
        self.newest.set(generation.as_u64());
    }

    #[inline]
    pub(crate) fn user_side(&self) -> UserSide {
        match self.user_side_due.get() {
            0 => UserSide::Current,
            _ => UserSide::Due,
        }
    }

    #[inline]
    pub(crate) fn set_user_side(&self, user: UserSide) {
        self.user_side_due.set(u64::from(user == UserSide::Due));
    }

    #[inline]
    pub(crate) fn owes_flush(&self) -> bool {
        self.owes_flush.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_owes_flush(&self, owes: bool) {
        self.owes_flush.store(owes, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn host(&self) -> SpaceId {
        SpaceId::from_raw(self.host.get())
    }

    #[inline]
    pub(crate) fn set_host(&self, space: SpaceId) {
        self.host.set(space.as_u64());
    }

    #[inline]
    pub(crate) fn lazy_root(&self) -> Root {
        Root(self.lazy_root.get())
    }

    #[inline]
    pub(crate) fn set_lazy_root(&self, root: Root) {
        self.lazy_root.set(root.0);
    }

    #[inline]
    pub(crate) fn void_others(&self) {
        self.others_void.set(1);
    }

    #[inline]
    pub(crate) fn take_others_void(&self) -> bool {
        let void = self.others_void.get() != 0;
        self.others_void.set(0);
        void
    }

    #[inline]
    pub(crate) fn untagged_is_kernel(&self) -> bool {
        self.untagged_is_kernel.get() != 0
    }

    #[inline]
    pub(crate) fn set_untagged_is_kernel(&self, is: bool) {
        self.untagged_is_kernel.set(u64::from(is));
    }
}
