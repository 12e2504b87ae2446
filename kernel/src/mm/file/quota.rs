//! [`Quota`]: how much memory files may have.

use crate::mm::error::MapError;
use crate::mm::frames;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The part of all frames that files may have, as Linux's tmpfs: one in this many.
const SHARE_OF_MEMORY: usize = 2;

/// Frames that hold bytes of files, in memory and stored.
static FRAMES: AtomicUsize = AtomicUsize::new(0);

/// The frames of one file. Dropping it gives them all back to the count.
#[derive(Debug)]
pub(super) struct Quota {
    taken: usize,
}

impl Quota {
    /// None.
    pub const fn new() -> Self {
        Self { taken: 0 }
    }

    /// One more.
    ///
    /// # Errors
    /// [`MapError::NoSpace`] when files have all that they may have.
    pub fn take(&mut self) -> Result<(), MapError> {
        let most = frames::capacity() / SHARE_OF_MEMORY;
        let more = |taken| (taken < most).then_some(taken + 1);
        FRAMES
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map_err(|_| MapError::NoSpace)?;
        self.taken += 1;
        Ok(())
    }

    /// One less.
    pub fn give(&mut self) {
        self.taken -= 1;
        FRAMES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        FRAMES.fetch_sub(self.taken, Ordering::Relaxed);
    }
}
