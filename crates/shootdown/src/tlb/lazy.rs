//! Lazy TLB: a CPU that runs no user code keeps its space loaded and is left alone.
//!
//! An idle CPU or a kernel thread needs no user memory. Leaving the space would cost a root load now and perhaps
//! another soon; staying would cost an interrupt a flush. So the CPU stays in the space's set and says that it is
//! lazy. Initiators skip it, unless tables were freed, which the processor may walk at any time (I4), the flush is strict, or its space changes over to a global tag.
//! Before the CPU uses the space again it reads the generation after a full barrier, as one that joins (I2).
//!
//! A lazy CPU that is interrupted because tables were freed lets go of the space for good: it loads the kernel's root, and nobody
//! interrupts it again. It cannot take its bit out of the set then, because the engine keeps no pointers to
//! spaces; the mark says enough, and the bit goes when the host leaves the space.

use crate::quiet::QuietMark;
use crate::sync::{AtomicU64, Ordering, OwnWord, const_fn};
use crate::tlb::SpaceId;

/// How much a CPU cares for the space that it is in the set of. Read by initiators. Kept as a word, by [`LazyMark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attention {
    /// It may use translations at any time, or is about to.
    Active = 0,
    /// It uses none, but its root leads to the tables.
    Lazy = 1,
    /// It has loaded the kernel's root.
    Detached = 2,
    /// It is in the kernel and looks before it uses any.
    Deferring = 3,
    /// It is about to use a space again, perhaps under a tag that it kept, and has not yet loaded its root, or not looked what it has missed.
    /// Said where anything may have passed it by: by a CPU that was lazy or deferring, and where back ends flush.
    Joining = 4,
    /// It reads page tables, perhaps of a space that it has not loaded; what it was before comes back afterwards ([`Walk`](crate::user_memory::Walk)).
    Walking = 5,
}

/// One CPU's [`Attention`], on a line of its own: written when it becomes idle and when it is over, where back ends flush also at each load
/// of a space; read by every initiator in between.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LazyMark {
    attention: AtomicU64,
    /// Where the CPU is, and was, as a resident (`present.rs`). Here, because a CPU that reads one may read the other.
    pub(super) here: AtomicU64,
    pub(super) was: AtomicU64,
    /// `here`, for its CPU.
    pub(super) here_copy: OwnWord,
    /// The space that the CPU loaded last under a [global tag](crate::remote::GlobalTags).
    tagged: AtomicU64,
    /// The guest that the CPU runs; [`SpaceId::KERNEL`] for none.
    guest: AtomicU64,
    /// How far it has come in which rendezvous.
    pub(crate) met: AtomicU64,
    /// Whether it uses nothing of the kernel (`quiet.rs`).
    pub(crate) quiet: QuietMark,
}

impl LazyMark {
    const_fn! {
        #[inline]
        pub(crate) fn new() -> Self {
            Self {
                attention: AtomicU64::new(0),
                here: AtomicU64::new(0),
                was: AtomicU64::new(0),
                here_copy: OwnWord::new(),
                tagged: AtomicU64::new(0),
                guest: AtomicU64::new(0),
                met: AtomicU64::new(0),
                quiet: QuietMark::new(),
            }
        }
    }

    /// Its CPU has stopped for good, and is nowhere.
    pub(crate) fn reset(&self) {
        self.set(Attention::Detached);
        self.set_guest(SpaceId::KERNEL);
        // ORDERING: as in `settle`.
        [&self.here, &self.was]
            .into_iter()
            .for_each(|word| word.store(0, Ordering::Release));
        self.here_copy.set(0);
        self.quiet.reset();
    }

    #[inline]
    pub(crate) fn get(&self) -> Attention {
        // ORDERING: acquires the CPU's last uses of the space, and of freed tables; pairs with `set`.
        match self.attention.load(Ordering::Acquire) {
            0 => Attention::Active,
            1 => Attention::Lazy,
            2 => Attention::Detached,
            3 => Attention::Deferring,
            4 => Attention::Joining,
            _ => Attention::Walking,
        }
    }

    /// The space that the CPU has loaded under its global tag: it never loads it under another again.
    pub(super) fn tagged(&self) -> SpaceId {
        // ORDERING: Acquire: no translation under an older tag is used; pairs with `set_tagged`.
        SpaceId(self.tagged.load(Ordering::Acquire))
    }

    pub(super) fn set_tagged(&self, space: SpaceId) {
        if self.tagged.load(Ordering::Relaxed) != space.0 {
            // ORDERING: Release publishes the load; pairs with `tagged`.
            self.tagged.store(space.0, Ordering::Release);
        }
    }

    /// The CPU is about to run `guest`, and a full barrier and a look at its generation follow; or it runs none any more.
    pub(super) fn set_guest(&self, guest: SpaceId) {
        // ORDERING: Release publishes that every access through the translations of the guest before is over (I4, I5); pairs with `guest`.
        self.guest.store(guest.0, Ordering::Release);
    }

    /// The guest that the CPU runs. On another CPU: after the barrier that follows the change of its tables.
    pub(crate) fn guest(&self) -> SpaceId {
        // ORDERING: Acquire: an initiator that finds another guest, or none, comes after the last use; pairs with `set_guest`.
        SpaceId(self.guest.load(Ordering::Acquire))
    }

    /// The CPU is about to use a space again. Until it says [`Active`](Attention::Active) NMI-like contexts use no user memory here, and an
    /// initiator that frees tables does not leave the CPU to a back end. A full barrier and a look at the generation must follow.
    #[inline]
    pub(crate) fn begin_join(&self) {
        // Relaxed: the barrier that follows publishes it.
        self.attention
            .store(Attention::Joining as u64, Ordering::Relaxed);
    }

    /// The CPU is about to read page tables; a full barrier must follow.
    pub(super) fn begin_walk(&self) {
        // Relaxed: as in `begin_join`.
        self.attention
            .store(Attention::Walking as u64, Ordering::Relaxed);
    }

    /// The CPU has read them, and is again what it was.
    pub(super) fn end_walk(&self, before: Attention) {
        // ORDERING: Release publishes the reads: an initiator that skips us, or leaves us to a back end, may free the tables (I4); pairs with `get`.
        self.attention.store(before as u64, Ordering::Release);
    }

    /// [`Lazy`](Attention::Lazy), [`Deferring`](Attention::Deferring): the CPU has used its space for the last time;
    /// [`Detached`](Attention::Detached): its tables too. [`Active`](Attention::Active): it is about to use a space, and a full barrier and a look at
    /// the generation must follow; or it ends a join: the root is loaded, and what passed the CPU by is dropped.
    #[inline]
    pub(crate) fn set(&self, attention: Attention) {
        // ORDERING: Release publishes that every access through the space's translations (and the root load
        // before `Detached`) is over: an initiator that skips us may give frames and tables away (I4, I5). At the end of a join it publishes that
        // the CPU has walked freed tables for the last time, to an initiator that leaves it to a back end (I4). Otherwise `Active` keeps what the CPU
        // owes before the mark, for NMIs on this CPU. Pairs with `get`.
        // Only its own CPU writes it. Where it says `Active` already, that store is older than the barrier of this switch (I2), and initiators keep the line.
        let before = self.attention.load(Ordering::Relaxed);
        if attention != Attention::Active || before != attention as u64 {
            self.attention.store(attention as u64, Ordering::Release);
        }
    }
}

impl Attention {
    /// Whether a flush, which [spares nobody](crate::tlb::FlushRequest::must_reach_all) or not, need not reach the CPU, whose mark was read after the barrier that follows the page-table change.
    pub(crate) fn skips(self, must_reach_all: bool) -> bool {
        match self {
            Self::Active | Self::Joining | Self::Walking => false,
            Self::Lazy | Self::Deferring => !must_reach_all,
            Self::Detached => true,
        }
    }
}
