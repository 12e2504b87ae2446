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
    /// Changes after that one that have been dropped here as well, a bit each, from the next one on. That one's is clear.
    apart: OwnWord,
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
            apart: OwnWord::new(),
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
        self.begin_at(generation);
        self.loaded.set(space.raw());
    }

    /// Of another space, or of this one anew: nothing here is older than `generation`.
    #[inline]
    fn begin_at(&self, generation: TlbGen) {
        self.generation.set(generation.as_u64());
        self.apart.set(0);
    }

    /// Nothing of the loaded space is older than `generation` any more.
    #[inline]
    pub(crate) fn record(&self, generation: TlbGen) {
        let passed = generation.as_u64().saturating_sub(self.generation.get());
        let apart = u32::try_from(passed).map_or(0, |passed| {
            self.apart.get().checked_shr(passed).unwrap_or(0)
        });
        self.generation.set(self.generation.get() + passed);
        self.apart.set(apart);
        self.record_apart(0);
    }

    /// What these changes of the loaded space were about is dropped; each is [a bit](Self::change). Those that are next in order count as passed.
    #[inline]
    pub(crate) fn record_apart(&self, changes: u64) {
        let apart = self.apart.get() | changes;
        let next = apart.trailing_ones();
        self.generation.set(self.generation.get() + u64::from(next));
        self.apart.set(apart.checked_shr(next).unwrap_or(0));
    }

    /// The bit of a change that may have to be dropped here; none if it was, `Some(0)` if it is too far ahead to be kept apart.
    #[inline]
    pub(crate) fn change(&self, generation: TlbGen) -> Option<u64> {
        let ahead = generation.as_u64().checked_sub(self.generation.get() + 1)?;
        let bit = match ahead < u64::from(u64::BITS) {
            true => 1 << ahead,
            false => 0,
        };
        (self.apart.get() & bit == 0).then_some(bit)
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
        self.begin_at(generation);
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
