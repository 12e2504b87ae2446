//! [`Vcpu`]: a virtual CPU, and how it enters and leaves guest mode.

use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::tlb::{Asid, GuestSpace, SpaceId, TagEntries, TlbGen};

/// A virtual CPU, as far as its translations go. It runs on one CPU at a time; between two entries it may move.
#[derive(Debug)]
pub struct Vcpu {
    pub(super) name: SpaceId,
    pub(super) guest: SpaceId,
    /// Where it ran last, and under which tag.
    pub(super) last: Option<(CpuId, Asid)>,
    /// How often its tag was of no use any more.
    pub(super) moves: u64,
}

impl Vcpu {
    /// A virtual CPU of `guest` that has not run yet. Any context; does not block.
    pub fn new<P: Platform>(engine: &Shootdown<P>, guest: &GuestSpace<P::Cpus>) -> Self {
        Self {
            name: engine.fresh_space_id(),
            guest: guest.id,
            last: None,
            moves: 0,
        }
    }

    /// All that it has cached, its guest-virtual translations too, is dropped before it runs again: after a flush by the guest that the host
    /// carries out (a hypercall, a write of CR3 that exits), and where the host has changed what the guest's own translations come from: its control
    /// registers, or its memory with its page tables, as by putting back a snapshot. Once for each virtual CPU.
    pub fn drop_translations(&mut self) {
        self.moves += 1;
    }

    /// How old what it caches from now on is. Both only grow, so their sum is the same only if both are.
    pub(super) fn age(&self, generation: TlbGen) -> TlbGen {
        generation.aged(self.moves)
    }
}

/// What the host loads as it enters guest mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestEntry {
    /// The value of the root of the nested page tables.
    pub root: u64,
    /// The tag, one of [`Platform::guest_slots`]; [`Asid::UNTAGGED`] where there are none.
    pub asid: Asid,
    /// Whether what is cached under the tag may be used. No other tag is to be dropped.
    pub entries: TagEntries,
}

/// How an attempt to enter guest mode ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestExit<R> {
    /// The guest ran, and is left.
    Ran(R),
    /// It was not entered, and nothing dropped.
    NotEntered(R),
}
