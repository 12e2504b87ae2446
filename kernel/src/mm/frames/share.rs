//! [`Share`]: one of several ownerships of a frame.
//!
//! After a fork, two page tables lead to the same frame; memory that processes share is also owned by what they
//! share. The owners are counted in the table of links: a frame in use is in no chain, so its word is free for that, and
//! sharing needs no memory.

use super::chain::link;
use super::frame::{Frame, number_of};
use crate::mm::layout::PhysAddr;
use crate::mm::witness;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

/// In the link word of a frame that has more than one owner; the other bits count those beyond the first. Numbers of
/// frames never reach it.
const SHARED: u32 = 1 << 31;

/// Ownership of a frame that others may own too. What a page-table entry of user memory holds.
///
/// As with [`Frame`], there is no `Drop`: the frame of a dropped share is never free again.
#[must_use = "a frame with a dropped share is lost until the next boot"]
#[derive(Debug, PartialEq, Eq)]
pub struct Share(NonZeroU32);

impl Share {
    /// The first share of a frame.
    pub const fn of(frame: Frame) -> Self {
        Self(frame.number())
    }

    /// Takes the share back from wherever [`into_raw`](Self::into_raw) put it.
    ///
    /// # Safety
    /// 1. `address` is that of a usable frame.
    /// 2. It came out of `into_raw`, once for each time that it is taken back.
    pub unsafe fn from_raw(address: PhysAddr) -> Self {
        Self(number_of(address))
    }

    /// Gives up the value, not the share; the address, to be kept in a page-table entry or the like.
    pub const fn into_raw(self) -> PhysAddr {
        super::frame::address_of(self.0)
    }

    /// The address of its frame.
    pub const fn address(&self) -> PhysAddr {
        super::frame::address_of(self.0)
    }

    /// Another share of the frame at `address`, of which the caller has one.
    ///
    /// # Panics
    /// When the frame is in a chain: it was freed although it had an owner.
    pub fn another(address: PhysAddr) -> Self {
        let share = Self(number_of(address));
        let more = |word: u32| match word {
            0 => Some(SHARED | 1),
            word if word & SHARED != 0 => Some(word + 1),
            _ => None,
        };
        let done = share
            .word()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        assert!(done.is_ok(), "{address:?} is free and in use");
        share
    }

    /// Whether nobody else owns the frame. That stays so: only an owner can add another.
    pub fn is_only(&self) -> bool {
        // ORDERING: the last uses by former owners happened before; pairs with the release in `release`.
        self.word().load(Ordering::Acquire) == 0
    }

    /// Gives up the share; the frame, if it was the last. No CPU may still be able to translate to the frame because
    /// of this share (I5).
    ///
    /// # Panics
    /// When the frame is in a chain: it was freed although it had an owner.
    pub fn release(self) -> Option<Frame> {
        witness::releasing(self.address());
        let fewer = |word: u32| match word {
            word if word == SHARED | 1 => Some(0),
            word if word & SHARED != 0 => Some(word - 1),
            _ => None,
        };
        // ORDERING: publishes that this owner's uses are over, and learns that those of others are.
        let before = self
            .word()
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
        match before {
            Ok(_) => None,
            Err(0) => Some(Frame::new(self.0)),
            Err(_) => panic!("frame {:#x} is free and in use", self.0),
        }
    }

    /// Its frame's number.
    pub(super) const fn number(&self) -> NonZeroU32 {
        self.0
    }

    pub(super) const fn from_number(number: NonZeroU32) -> Self {
        Self(number)
    }

    fn word(&self) -> &'static AtomicU32 {
        link(self.0)
    }
}

/// Whether the frame at `address` is in a chain of free ones, and not its last.
#[cfg(feature = "breaks")]
pub fn is_free(address: PhysAddr) -> bool {
    let word = link(number_of(address)).load(Ordering::Relaxed);
    word != 0 && word & SHARED == 0
}

/// Whether the frame at `address`, which the caller owns, has other owners.
pub fn is_shared(address: PhysAddr) -> bool {
    // ORDERING: as in `Share::is_only`.
    link(number_of(address)).load(Ordering::Acquire) != 0
}
