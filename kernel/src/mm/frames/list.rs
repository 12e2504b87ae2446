//! [`ShareList`]: shares that wait to be released.
//!
//! A frame has one link, and several owners may be giving it up at the same time, so shares cannot be chained as frames
//! are. They are noted on frames taken for that, a thousand on each.

use super::cache;
use super::chain::FrameChain;
use super::frame::Frame;
use super::share::Share;
use crate::mm::layout::PAGE_SIZE;
use crate::mm::limit;
use core::num::NonZeroU32;

/// Numbers that one frame has room for.
const WORDS: usize = PAGE_SIZE / size_of::<u32>();
/// Shares that are noted on one frame.
const ROOM: usize = limit(WORDS, 3);

type Note = [u32; WORDS];

/// Any number of shares. Dropping it loses them, as dropping a [`Share`] does.
#[must_use = "the frames of dropped shares are lost until the next boot"]
#[derive(Debug, Default)]
pub struct ShareList {
    /// The frame that is being filled, and how many shares it holds.
    open: Option<(Frame, usize)>,
    full: FrameChain,
}

impl ShareList {
    /// No shares.
    pub const fn new() -> Self {
        Self {
            open: None,
            full: FrameChain::new(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.open.is_none()
    }

    /// Adds a share; gives it back when there is no memory to note it on.
    pub fn push(&mut self, share: Share) -> Result<(), Share> {
        if self.open.as_ref().is_none_or(|(_, used)| *used == ROOM) {
            let Some(fresh) = cache::alloc_zeroed() else {
                return Err(share);
            };
            if let Some((filled, _)) = self.open.replace((fresh, 0)) {
                self.full.push(filled);
            }
        }
        if let Some((frame, used)) = &mut self.open {
            note(frame)[*used] = share.number().get();
            *used += 1;
        }
        Ok(())
    }

    /// Releases all shares. The frames that nobody owns any more, and those that the list was on.
    pub fn release(mut self) -> FrameChain {
        let mut freed = FrameChain::new();
        let mut used = 0;
        if let Some((frame, last)) = self.open.take() {
            self.full.push(frame);
            used = last;
        }
        while let Some(mut frame) = self.full.pop() {
            for number in note(&mut frame)[..used]
                .iter()
                .copied()
                .filter_map(NonZeroU32::new)
            {
                if let Some(frame) = Share::from_number(number).release() {
                    freed.push(frame);
                }
            }
            freed.push(frame);
            used = ROOM;
        }
        freed
    }
}

/// What is noted on the frame.
fn note(frame: &mut Frame) -> &mut Note {
    let note = frame.address().to_direct().cast::<Note>();
    // SAFETY: the direct map covers every frame, `&mut` is its only owner, and any words are valid.
    unsafe { &mut *note }
}
