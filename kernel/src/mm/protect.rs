//! Changing rights: `mprotect`.

use super::error::MapError;
use super::invalidate::Gather;
use super::prot::Prot;
use super::range::UserRange;
use super::space::MemorySpace;
use super::vma::Area;

impl MemorySpace {
    /// Gives all pages of the range the rights `prot`. Frames stay, also under `PROT_NONE`.
    ///
    /// # Errors
    /// [`MapError::Invalid`] for an unaligned address, [`MapError::NoMemory`] for a hole in the range
    /// or when splitting an area needs more memory than there is, [`MapError::Denied`] for the right to write to a file
    /// that was opened for reading, and for any change of what others lend. Nothing is changed then (Linux changes the areas in front of the hole).
    pub fn protect(&self, addr: usize, len: usize, prot: Prot) -> Result<(), MapError> {
        if len == 0 && UserRange::new(addr, 1).is_ok() {
            return Ok(());
        }
        let range = UserRange::new(addr, len)?;
        let mut inner = self.lock();
        if prot.write() && inner.areas.touching(range).any(Area::is_read_only_file) {
            return Err(MapError::Denied);
        }
        if inner.areas.touching(range).any(Area::is_for_guests) {
            return Err(MapError::Denied);
        }
        inner.areas.protect(range, prot)?;
        let mut gather = Gather::of(self, range);
        for area in inner.areas.touching(range) {
            let Some(part) = area.range.intersect(range) else {
                continue;
            };
            inner.table.visit(part, |addr, cell| {
                let prot = area.prot_of(cell.load());
                // A right gained needs no flush: a CPU with the old translation faults, which drops it,
                // and finds the entry as it wants it.
                let before = cell.protect(prot);
                if !before.prot().within(prot) {
                    gather.page(addr);
                    gather.note_writer(before);
                }
            });
        }
        let pending = self.submit(&mut inner, gather);
        drop(inner);
        pending.finish();
        Ok(())
    }
}
