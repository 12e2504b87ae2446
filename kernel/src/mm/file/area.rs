//! [`FileArea`]: the part of a file that a mapping shows, and the page faults in it.

use super::contents::{Copy, MappedPage};
use super::memory_file::MemoryFile;
use crate::mm::access::{FaultAccess, FaultError};
use crate::mm::error::MapError;
use crate::mm::frames::Frame;
use crate::mm::layout::{PAGE_SIZE, page_floor};
use crate::mm::pte::{Pte, PteCell};
use crate::mm::shared::SharedPlace;
use crate::mm::vma::Area;
use alloc::sync::Arc;

/// A part of a file in an area.
///
/// It is kept as the address where the file's first byte would be, so that parts of an area need nothing changed.
#[derive(Clone, Debug)]
pub struct FileArea {
    file: Arc<MemoryFile>,
    origin: usize,
    may_write: bool,
}

impl FileArea {
    /// The file from `offset` on, for an area that is yet to get its address: `moved` from 0. `may_write` says whether
    /// it was opened for writing.
    pub const fn new(file: Arc<MemoryFile>, offset: usize, may_write: bool) -> Self {
        Self {
            file,
            origin: 0usize.wrapping_sub(offset),
            may_write,
        }
    }

    /// The file.
    pub const fn file(&self) -> &Arc<MemoryFile> {
        &self.file
    }

    /// Whether the file was opened for writing.
    pub const fn may_write(&self) -> bool {
        self.may_write
    }

    /// The same part for an area at `new` instead of `old`.
    pub(in crate::mm) fn moved(self, old: usize, new: usize) -> Self {
        Self {
            origin: self.origin.wrapping_add(new).wrapping_sub(old),
            ..self
        }
    }

    /// Where `addr`, which the area holds, is in the file.
    pub(in crate::mm) fn place(&self, addr: usize) -> SharedPlace {
        SharedPlace {
            memory: Arc::as_ptr(&self.file).addr(),
            offset: self.offset(addr),
        }
    }

    /// The offset of `addr`, which the area holds.
    pub(in crate::mm) const fn offset(&self, addr: usize) -> usize {
        addr.wrapping_sub(self.origin)
    }

    /// Resolves an access at `addr` that `area`, of which this is the kind, allows. Under the lock of the address
    /// space, so that a sync that takes the page down as clean afterwards finds the entry, and takes the right to write away
    /// again.
    pub(in crate::mm) fn resolve(
        &self,
        area: &Area,
        cell: &PteCell,
        addr: usize,
        access: FaultAccess,
        spare: &mut Option<Frame>,
    ) -> Result<(), FaultError> {
        let offset = page_floor(self.offset(addr));
        let entry = cell.load();
        if !entry.is_empty() && (!access.write || entry.prot().write()) {
            // Another thread was here first.
            return Ok(());
        }
        let page = self.page(offset, spare, access.write)?;
        let prot = if access.write || page.is_dirty {
            area.prot
        } else {
            area.prot.without_write()
        };
        if entry.is_empty() {
            // Not present before, and processors do not cache that: no flush is due.
            cell.fill(Pte::tracked_leaf(page.share.into_raw(), prot));
        } else {
            // The entry has its share already, and a right gained needs no flush.
            let more = page.share.release();
            debug_assert!(more.is_none(), "the file and the entry have it");
            cell.protect(prot);
        }
        Ok(())
    }

    /// Fills `cell`, which is empty, with the file's page at `addr` for `area`, of which this is the kind and which is private: without the right to write.
    pub(in crate::mm) fn show(
        &self,
        area: &Area,
        cell: &PteCell,
        addr: usize,
        spare: &mut Option<Frame>,
    ) -> Result<(), FaultError> {
        let page = self.page(page_floor(self.offset(addr)), spare, false)?;
        // Not present before, and processors do not cache that: no flush is due.
        cell.fill(Pte::leaf(page.share.into_raw(), area.prot.without_write()));
        Ok(())
    }

    /// Copies the file's bytes at `page`, which the area holds, to a frame of zeroes. False beyond the end of the file.
    pub(in crate::mm) fn copy_to(&self, page: usize, frame: &Frame) -> bool {
        let to = frame.address().to_direct();
        // SAFETY: the frame is the caller's, in the direct map, and initialised.
        let bytes = unsafe { core::slice::from_raw_parts_mut(to, PAGE_SIZE) };
        let offset = self.offset(page) as u64;
        self.file.read(Copy::InMemory, offset, bytes) > 0
    }

    /// The file's page at `offset`, which is dirty from now on if somebody `writes`.
    fn page(
        &self,
        offset: usize,
        spare: &mut Option<Frame>,
        writes: bool,
    ) -> Result<MappedPage, FaultError> {
        let mut contents = self.file.contents.lock();
        if !contents.reaches(offset) {
            return Err(FaultError::BeyondFile);
        }
        let page = contents.page(offset, spare).map_err(refused)?;
        if writes {
            contents.mark_dirty(offset);
        }
        Ok(page)
    }
}

impl PartialEq for FileArea {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
            && self.origin == other.origin
            && self.may_write == other.may_write
    }
}

impl Eq for FileArea {}

fn refused(error: MapError) -> FaultError {
    match error {
        MapError::NoSpace => FaultError::NoFileSpace,
        _ => FaultError::OutOfMemory,
    }
}
