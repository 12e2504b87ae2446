//! What the header of a request slot says besides the request's number: [`Kind`] and [`OtherSlots`].

use crate::own_set::ones_from;

/// Slots per CPU. Several, so that a task that waits preemptibly never blocks the next caller on its CPU; the
/// last is kept for flushes, so that a flush finds one even when functions occupy all others.
#[cfg(not(loom))]
pub(crate) const SLOTS: usize = 4;
/// Two keep the models small: one for functions, one for flushes.
#[cfg(loom)]
pub(crate) const SLOTS: usize = 2;

/// Which slots of a CPU but the first may hold a request. The first one's header says it, so that a responder, which reads that
/// anyway, need not fetch the others' lines to find them empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OtherSlots(u8);

impl OtherSlots {
    pub(crate) const NONE: Self = Self(0);
    /// Above the bits of [`Kind`].
    const SHIFT: u32 = 4;
    /// The bits of a header that are theirs. The bit of the first slot is never set, and is [`Kind::TO_ONE`] in a header.
    pub(crate) const MASK: u64 = 0xe << Self::SHIFT;

    pub(crate) const fn from_header(header: u64) -> Self {
        Self(((header & Self::MASK) >> Self::SHIFT) as u8)
    }

    /// As in a header.
    pub(crate) const fn bits(self) -> u64 {
        (self.0 as u64) << Self::SHIFT
    }

    /// Adds slot `index`, which is not the first.
    pub(crate) fn add(&mut self, index: usize) {
        debug_assert!(index > 0 && index < SLOTS);
        self.0 |= 1 << index;
    }

    /// The first slot and these.
    pub(crate) fn with_first(self) -> impl Iterator<Item = usize> {
        ones_from(u64::from(self.0 | 1), 0).map(|index| index as usize)
    }
}

/// How a request is carried out and acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u8);

impl Kind {
    /// Run the function, then acknowledge.
    pub(crate) const CALL: Self = Self(0);
    /// Drop translations as the payload says, then acknowledge.
    pub(crate) const FLUSH: Self = Self(1);
    const INDIRECT: u8 = 2;
    const ACK_FIRST: u8 = 4;
    pub(super) const BROADCAST: u8 = 8;
    const TO_ONE: u8 = 16;
    /// The bits of a header that are a kind's.
    const MASK: u64 = 0x1f;

    pub(crate) const fn from_header(header: u64) -> Self {
        Self((header & Self::MASK) as u8)
    }

    /// As in a header.
    pub(crate) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The description lies beside the slot, not in it.
    pub(crate) const fn indirect(self) -> Self {
        Self(self.0 | Self::INDIRECT)
    }

    /// Acknowledge once the contents are copied, then do the work.
    pub(crate) const fn ack_first(self) -> Self {
        Self(self.0 | Self::ACK_FIRST)
    }

    /// Announced in rings, but for groups whose ring was full.
    pub(crate) const fn broadcast(self) -> Self {
        Self(self.0 | Self::BROADCAST)
    }

    /// Names one CPU.
    pub(crate) const fn to_one(self) -> Self {
        Self(self.0 | Self::TO_ONE)
    }

    pub(crate) const fn is_to_one(self) -> bool {
        self.0 & Self::TO_ONE != 0
    }

    pub(crate) const fn is_broadcast(self) -> bool {
        self.0 & Self::BROADCAST != 0
    }

    pub(crate) const fn is_flush(self) -> bool {
        self.0 & Self::FLUSH.0 != 0
    }

    pub(crate) const fn is_indirect(self) -> bool {
        self.0 & Self::INDIRECT != 0
    }

    pub(crate) const fn is_ack_first(self) -> bool {
        self.0 & Self::ACK_FIRST != 0
    }
}
