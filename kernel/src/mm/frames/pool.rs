//! The global pool: all frames that no CPU has in its cache.

use super::chain::{self, FrameChain};
use super::frame::{Frame, address_of};
use crate::sync::Mutex;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Most separate regions of usable memory; firmware reports a handful.
pub const MAX_REGIONS: usize = 64;

static CAPACITY: AtomicUsize = AtomicUsize::new(0);
pub(super) static POOL: Mutex<Pool> = Mutex::new(Pool::new());

/// Frames that were never handed out, as ranges of frame numbers, and frames that came back.
#[derive(Debug)]
pub(super) struct Pool {
    returned: FrameChain,
    fresh: [(u32, u32); MAX_REGIONS],
}

impl Pool {
    const fn new() -> Self {
        Self {
            returned: FrameChain::new(),
            fresh: [(0, 0); MAX_REGIONS],
        }
    }

    /// Takes up to `count` frames: returned ones first, whose memory is likelier to be cached.
    pub(super) fn take(&mut self, count: usize) -> FrameChain {
        let mut taken = self.returned.split_front(count);
        while taken.len() < count {
            match self.take_fresh() {
                Some(frame) => taken.push(frame),
                None => break,
            }
        }
        taken
    }

    pub(super) fn give(&mut self, frames: FrameChain) {
        self.returned.append(frames);
    }

    pub(super) fn len(&self) -> usize {
        let fresh: usize = self
            .fresh
            .iter()
            .map(|&(start, end)| (end - start) as usize)
            .sum();
        self.returned.len() + fresh
    }

    fn take_fresh(&mut self) -> Option<Frame> {
        let (start, _) = self.fresh.iter_mut().find(|(start, end)| start < end)?;
        let number = NonZeroU32::new(*start)?;
        *start += 1;
        // SAFETY: 1. the regions given to `init` are usable memory. 2. the number leaves the range
        // here, once.
        Some(unsafe { Frame::from_raw(address_of(number)) })
    }
}

/// Sets the allocator up. Called once at boot, before any other function of this module.
///
/// `regions` are ranges of usable frame numbers, disjoint, without frame 0; those past
/// `MAX_REGIONS` are not used. `links` has a zeroed word for every frame number in them.
///
/// # Panics
/// When `links` is too short.
pub fn init(regions: impl Iterator<Item = (u32, u32)>, links: &'static [AtomicU32]) {
    chain::set_links(links);
    let mut pool = POOL.lock();
    for (slot, region) in pool.fresh.iter_mut().zip(regions) {
        assert!(
            region.1 as usize <= links.len(),
            "the frame table ends before frame {}",
            region.1
        );
        *slot = region;
    }
    CAPACITY.store(pool.len(), Ordering::Relaxed);
}

/// How many frames there are in all, free or not.
pub fn capacity() -> usize {
    CAPACITY.load(Ordering::Relaxed)
}
