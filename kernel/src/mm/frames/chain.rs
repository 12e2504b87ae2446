//! [`FrameChain`]: any number of owned frames without memory of its own.
//!
//! The links live in a table beside the frames (one word each), not inside them: a frame that still
//! waits for a flush must not be written, because another CPU may be reading it through a stale
//! translation, or may overwrite the link (I5).

use super::frame::{Frame, address_of};
use crate::mm::layout::PhysAddr;
use core::mem;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use spin::Once;

/// Link of a frame that is in no chain.
pub(super) const OWNED: u32 = 0;
/// Link of the last frame of a chain. The highest bit is set in no link: see [`Share`](super::Share).
const LAST: u32 = u32::MAX >> 1;

static LINKS: Once<&'static [AtomicU32]> = Once::new();

/// A last-in first-out list of owned frames. Dropping it leaks them, as dropping a [`Frame`] does.
#[must_use = "a dropped chain of frames is lost until the next boot"]
#[derive(Debug, Default)]
pub struct FrameChain {
    ends: Option<(NonZeroU32, NonZeroU32)>,
    len: usize,
}

impl FrameChain {
    /// No frames.
    pub const fn new() -> Self {
        Self { ends: None, len: 0 }
    }

    /// How many frames.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a frame at the front.
    ///
    /// # Panics
    /// When the frame is already in a chain, or has another owner: it was freed twice, or too early.
    pub fn push(&mut self, frame: Frame) {
        let number = frame.number();
        let link = link(number);
        assert!(
            link.load(Ordering::Relaxed) == OWNED,
            "frame {number:#x} was freed twice, or has another owner"
        );
        let (next, last) = match self.ends {
            Some((first, last)) => (first.get(), last),
            None => (LAST, number),
        };
        link.store(next, Ordering::Relaxed);
        self.ends = Some((number, last));
        self.len += 1;
    }

    /// The address of each frame, from the front.
    #[allow(dead_code, reason = "for the tests on the host")]
    pub fn addresses(&self) -> impl Iterator<Item = PhysAddr> {
        let after = |number: &NonZeroU32| match link(*number).load(Ordering::Relaxed) {
            LAST => None,
            next => NonZeroU32::new(next),
        };
        core::iter::successors(self.ends.map(|(first, _)| first), after).map(address_of)
    }

    /// Removes the frame at the front.
    pub fn pop(&mut self) -> Option<Frame> {
        let (first, last) = self.ends?;
        let link = link(first);
        let next = link.load(Ordering::Relaxed);
        link.store(OWNED, Ordering::Relaxed);
        self.len -= 1;
        self.ends = match next {
            LAST => None,
            next => NonZeroU32::new(next).map(|next| (next, last)),
        };
        let address = address_of(first);
        // SAFETY: 1. only usable frames are pushed. 2. the chain owned it and has unlinked it.
        Some(unsafe { Frame::from_raw(address) })
    }

    /// Adds all frames of `other` at the front.
    pub fn append(&mut self, other: Self) {
        let Some((other_first, other_last)) = other.ends else {
            return;
        };
        self.ends = match self.ends {
            Some((first, last)) => {
                link(other_last).store(first.get(), Ordering::Relaxed);
                Some((other_first, last))
            }
            None => Some((other_first, other_last)),
        };
        self.len += other.len;
    }

    /// Splits off up to `count` frames from the front.
    pub fn split_front(&mut self, count: usize) -> Self {
        if count >= self.len {
            return mem::take(self);
        }
        let mut front = Self::new();
        for _ in 0..count {
            match self.pop() {
                Some(frame) => front.push(frame),
                None => break,
            }
        }
        front
    }
}

/// Gives all frames their links: a zeroed word for every frame number. Once, before any other use.
pub(super) fn set_links(links: &'static [AtomicU32]) {
    LINKS.call_once(|| links);
}

/// The link word of a frame. As a link it needs relaxed accesses only: a link is touched by the owner of its
/// frame, and ownership moves between CPUs under a lock or through a completed flush ticket.
pub(super) fn link(number: NonZeroU32) -> &'static AtomicU32 {
    match LINKS.get() {
        Some(links) => &links[number.get() as usize],
        None => panic!("the frame allocator is used before mm::init"),
    }
}
