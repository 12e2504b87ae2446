//! What a [ring](crate::call::Ring) is made of.

use crate::call::{Place, Ticket};
use crate::cpu::CpuId;
use crate::sync::AtomicU64;

/// Leaves of a group at most. The time of a broadcast grows with the CPUs of a leaf and with the number of leaves, which
/// for 64 CPUs is the same.
#[cfg(not(loom))]
pub(super) const LEAVES: usize = 8;
/// Two are all that models have CPUs for.
#[cfg(loom)]
pub(super) const LEAVES: usize = 2;

/// What the entry of a ticket says to one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announcement {
    /// There is none yet.
    Nothing,
    /// It is gone, and so are all before this ticket: their requests are complete.
    Gone(Ticket),
    /// A request that does not name the reader.
    NotOurs,
    /// A request that names the reader.
    Ours(Place),
    /// Its initiator has not finished it, and has interrupted no CPU for it.
    Incomplete,
}

/// Where a CPU sits in its ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// Its bit among the group's.
    pub(super) bit: u64,
    pub(super) leaf: usize,
    /// The bits of all CPUs of its leaf.
    pub(super) mates: u64,
}

impl Seat {
    /// That of the CPU with this bit, in this leaf of a group whose leaves have so many CPUs.
    #[inline]
    pub(crate) fn new(bit: u64, leaf: usize, leaf_cpus: usize) -> Self {
        Self {
            bit,
            leaf,
            mates: mates(leaf, leaf_cpus),
        }
    }
}

#[cfg(feature = "sim")]
impl Seat {
    pub(crate) fn mates(self) -> u64 {
        self.mates
    }
}

/// The CPUs of a leaf, as bits of their group.
#[inline]
pub(super) const fn mates(leaf: usize, leaf_cpus: usize) -> u64 {
    ((1 << leaf_cpus) - 1) << (leaf * leaf_cpus)
}

/// What an entry's word says: ticket, initiator, slot, and how far the entry has come. Zero says that it was never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub(super) u64);

impl Word {
    const CLAIMED: u64 = 1;
    const COMPLETE: u64 = 2;
    const SLOT_SHIFT: u32 = 2;
    const INITIATOR_SHIFT: u32 = 4;
    const TICKET_SHIFT: u32 = 16;

    #[inline]
    pub(super) fn claimed(ticket: Ticket, initiator: CpuId, slot: usize) -> Self {
        Self(
            ticket.as_u64() << Self::TICKET_SHIFT
                | (initiator.index() as u64) << Self::INITIATOR_SHIFT
                | (slot as u64) << Self::SLOT_SHIFT
                | Self::CLAIMED,
        )
    }

    #[inline]
    pub(super) fn complete(self) -> Self {
        Self(self.0 ^ (Self::CLAIMED | Self::COMPLETE))
    }

    #[inline]
    pub(super) fn is_complete(self) -> bool {
        self.0 & Self::COMPLETE != 0
    }

    /// `None` in an entry that was never used.
    #[inline]
    pub(super) fn ticket(self) -> Option<Ticket> {
        (self.0 != 0).then(|| Ticket::from_u64(self.0 >> Self::TICKET_SHIFT))
    }

    #[inline]
    pub(super) fn place(self) -> (CpuId, usize) {
        let initiator = (self.0 >> Self::INITIATOR_SHIFT) as usize % (1 << 12);
        let slot = (self.0 >> Self::SLOT_SHIFT) as usize % (1 << 2);
        (CpuId::from_index(initiator), slot)
    }
}

/// Four of them lie in a line.
#[derive(Debug)]
#[repr(C, align(16))]
pub(super) struct Entry {
    pub(super) word: AtomicU64,
    /// Which CPUs of the group.
    pub(super) targets: AtomicU64,
}

/// Those CPUs of a leaf that have not acknowledged.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Leaf(pub(super) AtomicU64);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Word;
    use crate::call::{SLOTS, Ticket};
    use crate::cpu::CpuId;

    #[test]
    fn a_word_keeps_the_largest_of_everything() {
        let last = Ticket::from_u64(0).minus(1);
        for ticket in [Ticket::from_u64(0), Ticket::from_u64(1), last] {
            for place in [(0, SLOTS - 1), (4095, 0), (4095, SLOTS - 1)] {
                let place = (CpuId::from_index(place.0), place.1);
                let claimed = Word::claimed(ticket, place.0, place.1);
                let complete = claimed.complete();
                assert!(!claimed.is_complete() && complete.is_complete());
                for word in [claimed, complete] {
                    assert_eq!((word.ticket(), word.place()), (Some(ticket), place));
                }
            }
        }
    }
}
