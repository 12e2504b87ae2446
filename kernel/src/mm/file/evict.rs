//! Giving pages up that can be made again, when memory runs out.
//!
//! A clean page is what the file was made with, or what is stored. It is unmapped in every space, in one flush for all of them, and given up then if nobody
//! has mapped or written to it meanwhile. Private copies are not the file's and stay.
//!
//! A page that a sync has just taken down as clean is not stored yet: while a sync runs, nothing of its file is given up.

use super::memory_file::MemoryFile;
use super::pages::{PIECE_PAGES, PageRange};
use crate::mm::error::MapError;
use crate::mm::frames::{self, FrameChain};
use crate::mm::invalidate::Reclaim;
use crate::mm::layout::PhysAddr;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// The number of the file to begin with: the one behind that at which the last one ended.
static HAND: AtomicU64 = AtomicU64::new(0);

/// Pages that are given up for one that finds no memory.
const AT_ONCE: usize = 256;

/// Gives some pages of files up, for a caller that has found no memory; whether there were any. As [`evict`].
pub fn make_room() -> bool {
    evict(AT_ONCE) > 0
}

/// Gives up at least so many pages of files, if there are any to give up; how many. Waits for other CPUs; no lock is held.
pub fn evict(wanted: usize) -> usize {
    let mut given = 0;
    let mut number = HAND.load(Ordering::Relaxed);
    // Twice: from there on, and from the first one on.
    for _ in 0..2 {
        while let Some((found, file)) = MemoryFile::next(number) {
            number = found + 1;
            given += file.evict().unwrap_or(0);
            if given >= wanted {
                HAND.store(number, Ordering::Relaxed);
                return given;
            }
        }
        number = 0;
    }
    given
}

impl MemoryFile {
    /// Gives up all pages that can be made again; how many.
    ///
    /// # Errors
    /// [`MapError::NoMemory`]: some are left.
    pub fn evict(&self) -> Result<usize, MapError> {
        let mut given = 0;
        let mut clean = Vec::new();
        let room = clean.try_reserve_exact(PIECE_PAGES as usize);
        room.map_err(|_| MapError::NoMemory)?;
        let mut next = 0;
        loop {
            clean.clear();
            let contents = self.contents.lock();
            let Some(first) = contents.next_pages(next, PageRange::WHOLE.end) else {
                break;
            };
            // To the end of a table.
            next = (first / PIECE_PAGES + 1) * PIECE_PAGES;
            if self.lanes.is_idle() {
                contents.find_clean(PageRange { first, end: next }, &mut clean);
            }
            drop(contents);
            if !clean.is_empty() {
                given += self.evict_pages(&clean)?;
            }
        }
        Ok(given)
    }

    fn evict_pages(&self, pages: &[(u32, PhysAddr)]) -> Result<usize, MapError> {
        let spaces = self.mappers.all()?;
        let mut reclaim = Reclaim::of(spaces.len())?;
        for space in &spaces {
            space.unmap_shown(self, pages, &mut reclaim);
        }
        reclaim.finish();
        let mut freed = FrameChain::new();
        let mut given = 0;
        let mut contents = self.contents.lock();
        if self.lanes.is_idle() {
            for &(page, frame) in pages {
                let frame = contents.evict(page, frame);
                given += usize::from(frame.is_some());
                frame.into_iter().for_each(|frame| freed.push(frame));
            }
        }
        drop(contents);
        frames::free_chain(freed);
        Ok(given)
    }
}
