//! `mremap`: resizing and moving a mapping with its frames.

use super::error::MapError;
use super::invalidate::Gather;
use super::layout::{MMAP_TOP, PAGE_SIZE, USER_START, page_ceil};
use super::map::{MapRequest, Placement, Populate};
use super::page_table::LEAF_TABLE_BYTES;
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::Area;
use crate::arch::top::region_of;

/// Where `mremap` may put the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Where it is.
    Stay,
    /// Elsewhere if it does not fit where it is (`MREMAP_MAYMOVE`).
    MayMove,
    /// At this address, in place of what is there (`MREMAP_MAYMOVE | MREMAP_FIXED`).
    Fixed(usize),
}

impl MemorySpace {
    /// Resizes the mapping at `addr` from `old_len` to `new_len` bytes, moving it if necessary and
    /// allowed; its address. Of no bytes of shared memory it makes a second mapping.
    ///
    /// # Errors
    /// As Linux: [`MapError::Invalid`] for unaligned addresses, empty or overlapping ranges, and
    /// for an area that shows what others lend; [`MapError::NotMapped`] when the old range is not inside one area; [`MapError::NoMemory`].
    pub fn remap(
        &self,
        addr: usize,
        old_len: usize,
        new_len: usize,
        destination: Destination,
    ) -> Result<usize, MapError> {
        if old_len == 0 {
            return self.map_again(addr, new_len, destination);
        }
        let old = UserRange::new(addr, old_len).map_err(|_| MapError::Invalid)?;
        let new_len = page_ceil(new_len)
            .filter(|len| *len > 0)
            .ok_or(MapError::Invalid)?;
        let mut inner = self.lock();
        let mut gather = Gather::of(self, UserRange::ALL);
        let outcome = inner.remap(old, new_len, destination, &mut gather);
        let pending = self.submit(&mut inner, gather);
        if outcome == Ok(addr) {
            drop(inner);
            pending.finish();
        } else {
            // Whoever unmaps the pages from where they are now frees them after a flush of that address, which does not wait for this one.
            pending.finish();
        }
        outcome
    }

    /// A second mapping of the shared memory at `addr`, of `len` bytes from there on.
    fn map_again(
        &self,
        addr: usize,
        len: usize,
        destination: Destination,
    ) -> Result<usize, MapError> {
        let page = UserRange::new(addr, PAGE_SIZE).map_err(|_| MapError::Invalid)?;
        let len = page_ceil(len).filter(|len| *len > 0);
        let len = len.ok_or(MapError::Invalid)?;
        let area = self.lock().areas.find(addr).cloned();
        let area = area.ok_or(MapError::NotMapped)?;
        if !area.kind.is_shared() {
            return Err(MapError::Invalid);
        }
        let (at, placement) = match destination {
            Destination::Stay => return Err(MapError::NoMemory),
            Destination::MayMove => (0, Placement::Anywhere),
            Destination::Fixed(to) => (fixed(page, to, len)?.start(), Placement::Fixed),
        };
        self.map(MapRequest {
            addr: at,
            len,
            prot: area.prot,
            placement,
            populate: Populate::OnDemand,
            kind: area.kind.moved(addr, 0),
        })
    }
}

/// The target of a fixed move.
fn fixed(old: UserRange, to: usize, new_len: usize) -> Result<UserRange, MapError> {
    let new = UserRange::new(to, new_len).map_err(|_| MapError::Invalid)?;
    match () {
        () if new.intersect(old).is_some() => Err(MapError::Invalid),
        () if to < USER_START => Err(MapError::Forbidden),
        () if new.touches_windows() => Err(MapError::NoMemory),
        () => Ok(new),
    }
}

/// Most areas that one move adds: two ends of the old range, two of the new one.
const AREAS_OF_A_MOVE: usize = 4;

impl Inner {
    fn remap(
        &mut self,
        old: UserRange,
        new_len: usize,
        destination: Destination,
        gather: &mut Gather<'_>,
    ) -> Result<usize, MapError> {
        let area = self.areas.find(old.start()).cloned();
        let area = area
            .filter(|area| area.range.contains(old))
            .ok_or(MapError::NotMapped)?;
        if area.is_for_guests() {
            return Err(MapError::Invalid);
        }
        if let Destination::Fixed(to) = destination {
            return self.move_to(area, old, fixed(old, to, new_len)?, gather);
        }
        if new_len <= old.bytes() {
            if let Some(tail) = UserRange::from_bounds(old.start() + new_len, old.end()) {
                self.remove(tail, gather)?;
            }
            return Ok(old.start());
        }
        if self.extend(&area, old, new_len)? {
            return Ok(old.start());
        }
        if destination == Destination::Stay {
            return Err(MapError::NoMemory);
        }
        let has_regions = self.table.keeps_top();
        let beside = has_regions.then(|| self.gap_in(region_of(old.start()), new_len));
        let gap = beside
            .flatten()
            .or_else(|| self.areas.find_gap(new_len, USER_START, MMAP_TOP));
        self.move_to(area, old, gap.ok_or(MapError::NoMemory)?, gather)
    }

    /// Makes the area longer where it is, if it ends with `old` and there is room behind.
    fn extend(&mut self, area: &Area, old: UserRange, new_len: usize) -> Result<bool, MapError> {
        let end = old.start().checked_add(new_len).ok_or(MapError::NoMemory)?;
        let Some(range) = UserRange::from_bounds(old.end(), end) else {
            return Ok(false);
        };
        if area.range.end() != old.end() || !self.areas.is_free(range) {
            return Ok(false);
        }
        self.areas.replace(Area {
            range,
            ..area.clone()
        })?;
        Ok(true)
    }

    /// Moves `old`, a part of `area`, with its frames to `new`, in place of what is there.
    fn move_to(
        &mut self,
        area: Area,
        old: UserRange,
        new: UserRange,
        gather: &mut Gather<'_>,
    ) -> Result<usize, MapError> {
        // Whatever can fail comes first; what `new` replaces is lost even so, as on Linux.
        self.areas.reserve(AREAS_OF_A_MOVE)?;
        self.remove(new, gather)?;
        if self.make_tables(new).is_none() {
            self.prune(new, gather);
            return Err(MapError::NoMemory);
        }
        self.move_entries(old, new, gather);
        self.areas.remove(old)?;
        // Before pruning: a table may serve the end of the new range and the start of the old one.
        self.areas.replace(Area {
            range: new,
            prot: area.prot,
            kind: area.kind.moved(old.start(), new.start()),
        })?;
        self.discard(old, gather);
        self.prune(old, gather);
        Ok(new.start())
    }

    /// Makes the tables that `range` needs; `None` without memory.
    pub(super) fn make_tables(&mut self, range: UserRange) -> Option<()> {
        let first = range.start() - range.start() % LEAF_TABLE_BYTES;
        for table in (first..range.end()).step_by(LEAF_TABLE_BYTES) {
            self.table.leaf_or_create(table)?;
        }
        Some(())
    }

    /// Moves the entries of `old` that fit into `new`, whose tables exist. The frames stay alive, but
    /// nobody may use them through the old addresses any more when the call returns.
    fn move_entries(&mut self, old: UserRange, new: UserRange, gather: &mut Gather<'_>) {
        let end = old.end().min(old.start() + new.bytes());
        let Some(moving) = UserRange::from_bounds(old.start(), end) else {
            return;
        };
        let table = &self.table;
        table.visit(moving, |addr, cell| {
            if let Some(target) = table.leaf(new.start() + (addr - old.start())) {
                let entry = cell.take();
                gather.page(addr);
                gather.note_writer(entry);
                target.fill(entry);
            }
        });
    }
}
