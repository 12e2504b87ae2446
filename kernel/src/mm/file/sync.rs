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

use super::counters;
use super::dirty::Logged;
use super::memory_file::MemoryFile;
use super::pages::{PIECE_PAGES, PageRange, offset_of};
use crate::mm::error::MapError;
use alloc::vec::Vec;

/// Brings the stored copies of all files up to date, as far as there is memory.
pub fn sync_all() {
    let mut number = 0;
    while let Some((found, file)) = MemoryFile::next(number) {
        number = found + 1;
        // Nobody is there to be told.
        let _stored = file.sync(PageRange::WHOLE);
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
        // For a log, or for a piece at a time where there is none.
        pages
            .try_reserve(Logged::MOST.max(PIECE_PAGES as usize))
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
