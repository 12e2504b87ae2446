//! Syncing files by the addresses where they are mapped: `msync`.

use super::error::MapError;
use super::file::{MemoryFile, PageRange};
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::AreaKind;
use alloc::sync::Arc;

/// When the pages of a range are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncWhen {
    /// Before the call returns.
    Now,
    /// Some time: as on Linux, with the next call that waits.
    Later,
}

impl MemorySpace {
    /// Stores what was written to the files that are mapped in the range. Waits for other CPUs.
    ///
    /// # Errors
    /// [`MapError::Invalid`] for an unaligned address, [`MapError::NoMemory`] for a hole in the range (the mapped parts are
    /// stored, as on Linux); else as [`MemoryFile::sync`].
    pub fn sync(&self, addr: usize, len: usize, when: SyncWhen) -> Result<(), MapError> {
        if len == 0 && UserRange::new(addr, 1).is_ok() {
            return Ok(());
        }
        let range = UserRange::new(addr, len)?;
        let is_covered = self.lock().areas.covers(range);
        let mut rest = Some(range);
        while let Some(range) = rest.filter(|_| when == SyncWhen::Now) {
            // Not under the lock: the sync takes that of every space that maps the file.
            let part = self.lock().first_file(range);
            let Some((file, pages, end)) = part else {
                break;
            };
            file.sync(pages)?;
            rest = UserRange::from_bounds(end, range.end());
        }
        if is_covered {
            Ok(())
        } else {
            Err(MapError::NoMemory)
        }
    }
}

impl Inner {
    /// The first part of `range` that shows a file: the file, the pages, and where that part ends.
    fn first_file(&self, range: UserRange) -> Option<(Arc<MemoryFile>, PageRange, usize)> {
        self.areas.touching(range).find_map(|area| {
            let AreaKind::SharedFile(shown) = &area.kind else {
                return None;
            };
            let part = area.range.intersect(range)?;
            let start = shown.offset(part.start());
            let pages = PageRange::of_bytes(start, start + part.bytes());
            Some((shown.file().clone(), pages, part.end()))
        })
    }
}
