//! [`CpuTlb`]: what one CPU has loaded, and which translations it may still hold.

use crate::sync::{OwnFlag, OwnWord};
use crate::tlb::{Asid, KernelRoot, OwedFlush, SpaceId, TlbGen, UserSide};

/// What one CPU's TLB may hold. Its CPU alone uses it, with interrupts off; NMI-like contexts read it.
#[derive(Debug)]
pub(crate) struct CpuTlb {
    /// The loaded space; [`SpaceId::KERNEL`] for a root without a user part, and while another is being loaded.
    loaded: OwnWord,
    /// No translation of the loaded space here is older than this generation (I3).
    generation: OwnWord,
    /// A flush that was acknowledged, or that passed the deferring CPU by, has yet to be done: user memory must not be
    /// touched on this CPU.
    owes_flush: OwnFlag,
    /// What was acknowledged.
    pub(crate) owed: OwedFlush,
    /// The tag of the loaded root.
    asid: OwnWord,
    /// The loaded root, where it may have to be loaded again under a [global tag](crate::remote::GlobalTags). Without global tags: between the halves of a switch, the
    /// space that is being loaded.
    pub(super) root: OwnWord,
    /// Whether the user side of the tag missed a flush.
    user_side_due: OwnWord,
    /// The space that the host has not left: the loaded one, or the one that the CPU was lazy in when it had to
    /// let go. One that is [being left](SpaceId::being_left) between the halves of a switch.
    host: OwnWord,
    /// The root to load when a lazy CPU has to let go.
    lazy_root: OwnWord,
    /// Whose turn it is to lose a tag.
    pub(crate) turn: OwnWord,
    /// A kernel range was flushed under the loaded tag only: the others must be dropped before they are used.
    others_void: OwnFlag,
    /// The complement of the kernel root of which alone [`Asid::UNTAGGED`] holds translations, none of them void; zero where it may hold others.
    untagged: OwnWord,
    /// The loaded root, if it is a private one.
    pub(crate) windows: LoadedWindows,
}

impl CpuTlb {
    pub(crate) const fn new() -> Self {
        Self {
            loaded: OwnWord::new(),
            generation: OwnWord::new(),
            owes_flush: OwnFlag::new(),
            owed: OwedFlush::new(),
            asid: OwnWord::new(),
            root: OwnWord::new(),
            user_side_due: OwnWord::new(),
            host: OwnWord::new(),
            lazy_root: OwnWord::new(),
            turn: OwnWord::new(),
            others_void: OwnFlag::new(),
            untagged: OwnWord::new(),
            windows: LoadedWindows::new(),
        }
    }

    #[inline]
    pub(crate) fn loaded(&self) -> SpaceId {
        SpaceId::from_raw(self.loaded.get())
    }

    #[inline]
    pub(crate) fn generation(&self) -> TlbGen {
        TlbGen::from_raw(self.generation.get())
    }

    #[inline]
    pub(crate) fn asid(&self) -> Asid {
        Asid::new(self.asid.get() as u16)
    }

    /// A root is about to be loaded: from here to [`set_loaded`](Self::set_loaded) no space is.
    #[inline]
    pub(crate) fn begin_load(&self) {
        self.loaded.set(SpaceId::KERNEL.raw());
    }

    #[inline]
    pub(crate) fn set_loaded(&self, space: SpaceId, generation: TlbGen, asid: Asid) {
        self.asid.set(u64::from(asid.as_u16()));
        self.record(generation);
        self.loaded.set(space.raw());
    }

    #[inline]
    pub(crate) fn record(&self, generation: TlbGen) {
        self.generation.set(generation.as_u64());
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
        self.owes_flush.get()
    }

    #[inline]
    pub(crate) fn set_owes_flush(&self, owes: bool) {
        self.owes_flush.set(owes);
    }

    #[inline]
    pub(crate) fn host(&self) -> SpaceId {
        SpaceId::from_raw(self.host.get())
    }

    #[inline]
    pub(crate) fn set_host(&self, space: SpaceId) {
        self.host.set(space.raw());
    }

    /// From here to [`end_switch`](Self::end_switch) the host loads a root of `next`, no translation of which is older than `generation`.
    pub(super) fn begin_switch(&self, next: SpaceId, generation: TlbGen) {
        self.record(generation);
        self.root.set(next.raw());
        self.set_host(self.host().being_left());
    }

    /// From which space to which the host switches, between the halves.
    pub(super) fn switch(&self) -> Option<(SpaceId, SpaceId)> {
        let host = self.host();
        let from = SpaceId::from_raw(host.raw() & !SpaceId::SPARE_BIT);
        host.is_being_left()
            .then(|| (from, SpaceId::from_raw(self.root.get())))
    }

    /// The host has loaded the root of `next`, untagged.
    pub(super) fn end_switch(&self, next: SpaceId) {
        self.set_untagged(None);
        self.set_user_side(UserSide::Current);
        self.set_loaded(next, self.generation(), Asid::UNTAGGED);
        self.set_host(next);
    }

    #[inline]
    pub(crate) fn lazy_root(&self) -> KernelRoot {
        KernelRoot::kept(self.lazy_root.get())
    }

    #[inline]
    pub(crate) fn set_lazy_root(&self, root: KernelRoot) {
        self.lazy_root.set(root.as_u64());
    }

    #[inline]
    pub(crate) fn void_others(&self) {
        self.others_void.set(true);
    }

    #[inline]
    pub(crate) fn take_others_void(&self) -> bool {
        self.others_void.replace(false)
    }

    /// Whether [`Asid::UNTAGGED`] holds nothing but translations of `root`, none of them void.
    #[inline]
    pub(crate) fn is_untagged(&self, root: KernelRoot) -> bool {
        self.untagged.get() == !root.as_u64()
    }

    #[inline]
    pub(crate) fn set_untagged(&self, root: Option<KernelRoot>) {
        self.untagged.set(root.map_or(0, |root| !root.as_u64()));
    }
}

/// What a CPU remembers of the private root that it has loaded.
#[derive(Debug)]
pub(crate) struct LoadedWindows {
    /// [`SpaceId::KERNEL`] when it has loaded another root.
    pub(super) name: OwnWord,
    pub(super) private: OwnWord,
    pub(super) shared: OwnWord,
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

    #[inline]
    pub(super) fn name(&self) -> SpaceId {
        SpaceId::from_raw(self.name.get())
    }
}
