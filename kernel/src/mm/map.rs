//! Creating and removing mappings: `mmap` and `munmap`.

use super::error::MapError;
use super::frames::{self, Share};
use super::invalidate::Gather;
use super::layout::PAGE_SIZE;
use super::prot::Prot;
use super::pte::Pte;
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::{Area, AreaKind};

/// Where a new mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At the wished address if that is free, else anywhere.
    Anywhere,
    /// The same in the region of a thread, if it has one, or in one of nobody.
    Home(Option<usize>),
    /// In a region of nobody.
    Fresh,
    /// At the given address, in place of what is there (`MAP_FIXED`).
    Fixed,
    /// At the given address, refused if something is there (`MAP_FIXED_NOREPLACE`).
    FixedIfFree,
}

/// When the pages of a new mapping get their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// At the first access.
    OnDemand,
    /// At once, as far as memory lasts (`MAP_POPULATE`).
    Now,
}

/// A request for a mapping.
#[derive(Clone, Debug)]
pub struct MapRequest {
    /// Wished or fixed address.
    pub addr: usize,
    /// Bytes, rounded up to pages.
    pub len: usize,
    /// Rights of user code.
    pub prot: Prot,
    /// Where.
    pub placement: Placement,
    /// When frames are taken.
    pub populate: Populate,
    /// For what.
    pub kind: AreaKind,
}

impl MemorySpace {
    /// Maps zeroed memory; its address.
    ///
    /// # Errors
    /// As `mmap`: [`MapError::Invalid`] (unaligned fixed address, no length), `NoMemory`, `Exists`,
    /// `Forbidden` (fixed below the lowest mappable address).
    pub fn map(&self, request: MapRequest) -> Result<usize, MapError> {
        let mut inner = self.lock();
        let range = inner.place(&request)?;
        if let Some(shown) = request.kind.shown() {
            shown.file().add_mapper(self)?;
        }
        inner.areas.replace(Area {
            range,
            prot: request.prot,
            kind: request.kind.moved(0, range.start()),
        })?;
        let mut gather = Gather::of(self, range);
        inner.discard(range, &mut gather);
        let pending = self.submit(&mut inner, gather);
        if request.populate == Populate::Now {
            inner.populate_all(range);
        }
        drop(inner);
        pending.finish();
        Ok(range.start())
    }

    /// Removes all mappings of the range; holes in it are no error.
    ///
    /// # Errors
    /// [`MapError::Invalid`] for an unaligned address, no length, or a range outside the user half;
    /// [`MapError::NoMemory`] when splitting an area needs more memory than there is.
    pub fn unmap(&self, addr: usize, len: usize) -> Result<(), MapError> {
        let range = UserRange::new(addr, len).map_err(|_| MapError::Invalid)?;
        let mut inner = self.lock();
        let mut gather = Gather::of(self, range);
        inner.remove(range, &mut gather)?;
        let pending = self.submit(&mut inner, gather);
        drop(inner);
        pending.finish();
        Ok(())
    }

    /// Copies `data` to `addr`, whatever the rights of user code there. For program images and file
    /// contents, before user code knows the address.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] when an area is missing, [`MapError::NoMemory`] without frames.
    ///
    /// # Panics
    /// When another process shares a page of it.
    pub fn write_initial(&self, addr: usize, data: &[u8]) -> Result<(), MapError> {
        let mut inner = self.lock();
        let mut rest = data;
        let mut position = addr;
        while !rest.is_empty() {
            let offset = position % PAGE_SIZE;
            let (now, later) = rest.split_at(rest.len().min(PAGE_SIZE - offset));
            inner.write_page(position - offset, offset, now)?;
            rest = later;
            position += now.len();
        }
        Ok(())
    }
}

impl Inner {
    /// Forgets areas, frames and emptied tables of `range`; on an error nothing is changed.
    pub(super) fn remove(
        &mut self,
        range: UserRange,
        gather: &mut Gather<'_>,
    ) -> Result<(), MapError> {
        self.areas.remove(range)?;
        self.discard(range, gather);
        self.prune(range, gather);
        Ok(())
    }

    /// Empties all entries of `range`; areas stay.
    pub(super) fn discard(&self, range: UserRange, gather: &mut Gather<'_>) {
        self.table.visit(range, |addr, cell| {
            let entry = cell.take();
            if let Some(share) = share_of(entry) {
                gather.freed_page(addr, share);
                gather.note_writer(entry);
            }
        });
    }

    /// Unlinks the tables that served `range`, in which no area is left, and nothing else.
    pub(super) fn prune(&mut self, range: UserRange, gather: &mut Gather<'_>) {
        let gap = self.areas.gap_around(range);
        self.table.prune(range, gap, |addr, bytes, table| {
            gather.freed_table(addr, bytes, table)
        });
    }

    /// Fills `range`, which one area holds, as far as memory lasts.
    fn populate_all(&mut self, range: UserRange) {
        let Some(area) = self.areas.find(range.start()).cloned() else {
            return;
        };
        for addr in range.pages() {
            if self.populate(addr, &area).is_err() {
                return;
            }
        }
    }

    fn write_page(&mut self, page: usize, offset: usize, data: &[u8]) -> Result<(), MapError> {
        let area = self.areas.find(page).cloned().ok_or(MapError::NotMapped)?;
        let cell = self.table.leaf_or_create(page).ok_or(MapError::NoMemory)?;
        let target = match cell.load().frame() {
            Some(frame) => {
                assert!(!frames::is_shared(frame), "page {page:#x} is no new one");
                frame
            }
            None => {
                let fresh = frames::alloc_zeroed().ok_or(MapError::NoMemory)?;
                if let AreaKind::PrivateFile(shown) = &area.kind {
                    shown.copy_to(page, &fresh);
                }
                let frame = fresh.into_raw();
                cell.fill(Pte::leaf(frame, area.prot));
                frame
            }
        };
        let bytes = target.to_direct().wrapping_add(offset);
        // SAFETY: the frame belongs to this locked space and `offset + data.len()` ends inside it;
        // user code may race with the copy, but only on bytes that it was not told about yet.
        unsafe { bytes.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }
}

/// The share of the frame that a leaf had which was just taken out of its table.
pub(super) fn share_of(taken: Pte) -> Option<Share> {
    let frame = taken.frame()?;
    // SAFETY: 1. entries hold usable frames only. 2. the entry had the share and is empty now.
    Some(unsafe { Share::from_raw(frame) })
}
