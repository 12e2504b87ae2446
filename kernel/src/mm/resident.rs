//! Which pages are there: for `mlock` and `mincore`. Nothing is ever swapped out.

use super::error::MapError;
use super::layout::{PAGE_SIZE, page_floor};
use super::range::UserRange;
use super::space::MemorySpace;

impl MemorySpace {
    /// The pages that the bytes lie in.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] unless areas hold all of them, [`MapError::Invalid`] for none, or beyond all addresses.
    pub fn mapped(&self, addr: usize, len: usize) -> Result<UserRange, MapError> {
        let start = page_floor(addr);
        let len = len.checked_add(addr - start).ok_or(MapError::Invalid)?;
        let range = UserRange::new(start, len)?;
        match self.lock().areas.covers(range) {
            true => Ok(range),
            false => Err(MapError::NoMemory),
        }
    }

    /// Sets the bytes, one a page from `start` up, to 1 where the page is there, to 0 elsewhere.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] unless areas hold all of them.
    pub fn resident(&self, start: usize, pages: &mut [u8]) -> Result<(), MapError> {
        let range = UserRange::new(start, pages.len() * PAGE_SIZE)?;
        let inner = self.lock();
        if !inner.areas.covers(range) {
            return Err(MapError::NoMemory);
        }
        pages.fill(0);
        inner.table.visit(range, |addr, _| {
            pages[(addr - range.start()) / PAGE_SIZE] = 1;
        });
        Ok(())
    }
}
