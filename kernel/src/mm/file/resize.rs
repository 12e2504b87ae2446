//! Changing a file's size.

use super::counters;
use super::memory_file::Change;
use super::pages::{MAX_BYTES, PageRange, number_of};
use crate::mm::error::MapError;
use crate::mm::frames::{self, FrameChain};
use crate::mm::invalidate::Reclaim;
use crate::mm::layout::PAGE_SIZE;

impl Change<'_> {
    /// Cuts the file, or makes it longer by zeroes. What is cut off disappears from all mappings: an access there fails
    /// from now on. Waits for other CPUs: one flush, however many spaces map it.
    ///
    /// # Errors
    /// [`MapError::TooBig`], or [`MapError::NoMemory`]; nothing is changed then.
    pub fn set_size(&self, size: u64) -> Result<(), MapError> {
        if size > MAX_BYTES {
            return Err(MapError::TooBig);
        }
        let file = self.file();
        let old = self.size();
        if size >= old {
            file.contents.lock().set_size(size);
            return Ok(());
        }
        // First the size, so that no fault maps what is unmapped then; and nobody maps the file without being in the list
        // or finding the new size.
        file.contents.lock().limit(size);
        let first = number_of(size.next_multiple_of(PAGE_SIZE as u64) as usize);
        let spaces = file.mappers.all();
        let begun = spaces.and_then(|spaces| Ok((Reclaim::of(spaces.len())?, spaces)));
        let (mut reclaim, spaces) = begun.inspect_err(|_| file.contents.lock().limit(old))?;
        for space in &spaces {
            space.unmap_file(file, first, &mut reclaim);
        }
        counters::count_cut(reclaim.finish());
        let end = PageRange::of_bytes(0, old as usize).end;
        for piece in (PageRange { first, end }).pieces() {
            let freed = file.contents.lock().remove(piece);
            frames::free_chain(freed);
        }
        let mut contents = file.contents.lock();
        contents.set_size(size);
        let tables: FrameChain = contents.remove_tables(first);
        drop(contents);
        frames::free_chain(tables);
        Ok(())
    }
}
