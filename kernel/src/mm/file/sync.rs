//! Syncing a file: the stored copy is brought up to date.
//!
//! The order is what keeps every write (see the [module](super)):
//! 1. the dirty pages of the range are taken down as clean;
//! 2. every address space that maps them takes the right to write away, and waits until all its CPUs have noticed;
//! 3. the pages are copied.
//!
//! Whoever writes between 1 and 2 makes the page dirty again, and may or may not be in the copy. Several syncs of a file
//! may run at a time, and wait for CPUs side by side: see `lanes`. Each copies what is in memory then, so the copy that
//! comes last is the newest.

use super::contents::offset_of;
use super::counters;
use super::dirty::Logged;
use super::memory_file::{MAX_BYTES, MemoryFile};
use crate::mm::error::MapError;
use crate::mm::layout::PAGE_SIZE;
use crate::mm::page_table::LEAF_TABLE_BYTES;
use crate::mm::range::UserRange;
use alloc::vec::Vec;

/// Pages that are looked at under the lock of the contents, and stored pages that are put down as dirty again.
const PIECE_PAGES: u32 = (LEAF_TABLE_BYTES / PAGE_SIZE) as u32;

/// Consecutive pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// The first one.
    pub first: u32,
    /// One past the last one.
    pub end: u32,
}

impl PageRange {
    /// Every page that a file can have.
    pub const WHOLE: Self = Self {
        first: 0,
        end: (MAX_BYTES / PAGE_SIZE as u64) as u32,
    };

    /// The pages of a file that have bytes from offset `start` to `end`, neither of which needs to be in the file.
    pub fn of_bytes(start: usize, end: usize) -> Self {
        let number = |page: usize| {
            u32::try_from(page)
                .unwrap_or(Self::WHOLE.end)
                .min(Self::WHOLE.end)
        };
        Self {
            first: number(start / PAGE_SIZE),
            end: number(end.div_ceil(PAGE_SIZE)),
        }
    }

    pub(super) fn holds(self, page: u32) -> bool {
        (self.first..self.end).contains(&page)
    }

    /// As offsets; `None` if it is empty.
    pub(super) fn offsets(self) -> Option<UserRange> {
        UserRange::from_bounds(offset_of(self.first), offset_of(self.end))
    }

    /// The same pages in pieces of bounded size.
    pub(super) fn pieces(self) -> impl Iterator<Item = Self> {
        (self.first..self.end)
            .step_by(PIECE_PAGES as usize)
            .map(move |first| Self {
                first,
                end: self.end.min(first + PIECE_PAGES),
            })
    }
}

impl MemoryFile {
    /// Brings the stored copy of `range` up to date: all that was written before the call. Waits for other CPUs.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] or [`MapError::NoSpace`], also for pages that another call was storing; what could not be
    /// stored is still dirty then.
    pub fn sync(&self, range: PageRange) -> Result<(), MapError> {
        let mut running = self.lanes.enter();
        let taken = self.take(range, &mut running.pages);
        let turns = self.lanes.turns();
        let done = self.write_back(&mut running.pages).and(taken);
        if done.is_err() {
            running.fail();
        }
        drop(running);
        let others = if self.lanes.wait_for(&turns) {
            Ok(())
        } else {
            Err(MapError::NoSpace)
        };
        done.and(others)
    }

    /// Takes the dirty pages of `range` down as clean, into `pages`; stores those that do not fit in there.
    fn take(&self, range: PageRange, pages: &mut Vec<u32>) -> Result<(), MapError> {
        pages.clear();
        pages
            .try_reserve(Logged::MOST)
            .map_err(|_| MapError::NoMemory)?;
        let logged = self.contents.lock().take_logged(range, pages);
        match logged {
            Logged::All => Ok(()),
            Logged::TooLittle => self.search(range, pages),
        }
    }

    /// The same without a log: looks at all pages.
    fn search(&self, range: PageRange, pages: &mut Vec<u32>) -> Result<(), MapError> {
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        let end = range.end.min(PageRange::of_bytes(0, size).end);
        let mut done = Ok(());
        for piece in (PageRange { end, ..range }).pieces() {
            if pages.try_reserve(PIECE_PAGES as usize).is_err() {
                // In several turns, then.
                done = done.and(self.write_back(pages));
                pages.clear();
            }
            self.contents.lock().take_dirty(piece, pages);
        }
        done
    }

    /// Stores `pages`, which were just taken down as clean.
    fn write_back(&self, pages: &mut [u32]) -> Result<(), MapError> {
        counters::count_sync(pages.len());
        if pages.is_empty() {
            return Ok(());
        }
        pages.sort_unstable();
        let done = self.store_protected(pages);
        if done.is_err() {
            // All of them: some are stored for nothing, and none is lost.
            for piece in pages.chunks(PIECE_PAGES as usize) {
                let mut contents = self.contents.lock();
                piece
                    .iter()
                    .for_each(|&page| contents.mark_dirty(offset_of(page)));
            }
        }
        done
    }

    fn store_protected(&self, pages: &[u32]) -> Result<(), MapError> {
        #[cfg(feature = "breaks")]
        if crate::mm::invalidate::breaks::copies_early() {
            self.store(pages)?;
            crate::mm::invalidate::breaks::dawdle();
            return self.write_protect(pages);
        }
        self.write_protect(pages)?;
        self.store(pages)
    }

    /// Returns when nobody can write to `pages` without putting them down as dirty first.
    fn write_protect(&self, pages: &[u32]) -> Result<(), MapError> {
        // One space after the other: a flush that is not waited for keeps a request slot of its CPU.
        for space in self.mappers.all()? {
            space.write_protect(self, pages);
        }
        Ok(())
    }

    fn store(&self, pages: &[u32]) -> Result<(), MapError> {
        pages
            .iter()
            .try_for_each(|&page| self.contents.lock().store(page))
    }
}
