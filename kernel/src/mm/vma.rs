//! The list of mapped areas of one address space: which user addresses may be touched, and how.
//!
//! A sorted vector instead of a tree: look-ups are one binary search over a dense array (the page
//! fault path does exactly one), and growth is fallible (`try_reserve`), which no std map offers.
//! Every change reserves its room first, so it happens completely or not at all.

use super::error::MapError;
use super::file::FileArea;
use super::layout::WINDOWS;
use super::prot::Prot;
use super::range::UserRange;
use super::shared::SharedArea;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// Most areas one address space may have, as Linux's `vm.max_map_count`.
pub const MAX_AREAS: usize = 65530;

/// Tells areas for lent pages apart: what a program maps where one was is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestId(u64);

impl GuestId {
    pub(super) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// What an area is for; areas of different kinds never merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AreaKind {
    /// A segment of the program file.
    Image,
    /// A copy of another file's contents, from `mmap`.
    File,
    /// The same of a file that never changes, mapped to be shared: nobody may write to it.
    FixedFile,
    /// What `brk` made.
    Heap,
    /// Anonymous memory from `mmap`.
    Anonymous,
    /// A part of memory that forked processes share.
    Shared(SharedArea),
    /// A part of a file, whose pages are the file's own.
    SharedFile(FileArea),
    /// Pages that others lend, see [`guest`](super::guest).
    Guests(GuestId),
    /// The initial stack: grows down on a fault below it.
    Stack,
}

impl AreaKind {
    /// Whether processes forked from one another see each other's writes; else each has its own copy.
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_) | Self::SharedFile(_))
    }

    /// Whether a program mapped it with `MAP_SHARED`.
    pub fn is_mapped_shared(&self) -> bool {
        self.is_shared() || *self == Self::FixedFile
    }

    /// The same contents for an area that is moved from `old` to `new`.
    #[must_use]
    pub fn moved(self, old: usize, new: usize) -> Self {
        match self {
            Self::Shared(area) => Self::Shared(area.moved(old, new)),
            Self::SharedFile(area) => Self::SharedFile(area.moved(old, new)),
            other => other,
        }
    }
}

/// One area: consecutive pages with the same rights and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The pages.
    pub range: UserRange,
    /// What user code may do with them.
    pub prot: Prot,
    /// What they are for.
    pub kind: AreaKind,
}

impl Area {
    /// Whether it shows a file that may not be written to through it.
    pub fn is_read_only_file(&self) -> bool {
        match &self.kind {
            AreaKind::SharedFile(shown) => !shown.may_write(),
            kind => *kind == AreaKind::FixedFile,
        }
    }

    /// Whether it is for pages that others lend.
    pub const fn is_for_guests(&self) -> bool {
        matches!(self.kind, AreaKind::Guests(_))
    }

    fn continues(&self, next: &Self) -> bool {
        self.range.end() == next.range.start() && self.prot == next.prot && self.kind == next.kind
    }
}

/// The areas of an address space, sorted, disjoint, and merged where equal neighbours touch.
#[derive(Debug, Default)]
pub struct Areas {
    list: Vec<Area>,
}

impl Areas {
    /// No areas.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// A copy of all areas.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] when the kernel heap is full.
    pub fn duplicate(&self) -> Result<Self, MapError> {
        let mut copy = Self::new();
        copy.list
            .try_reserve_exact(self.list.len())
            .map_err(|_| MapError::NoMemory)?;
        copy.list.extend(self.list.iter().cloned());
        Ok(copy)
    }

    /// The same without what others lend: that is not the child's.
    ///
    /// # Errors
    /// As [`duplicate`](Self::duplicate).
    pub fn duplicate_for_child(&self) -> Result<Self, MapError> {
        let mut copy = self.duplicate()?;
        copy.list.retain(|area| !area.is_for_guests());
        Ok(copy)
    }

    /// All areas as a plain list.
    pub fn into_list(self) -> Vec<Area> {
        self.list
    }

    /// All areas from the lowest address up.
    pub fn iter(&self) -> impl Iterator<Item = &Area> {
        self.list.iter()
    }

    /// The area that holds `addr`.
    pub fn find(&self, addr: usize) -> Option<&Area> {
        self.list
            .get(self.first_ending_after(addr))
            .filter(|area| area.range.start() <= addr)
    }

    /// The lowest area that starts above `addr`.
    pub fn next_above(&self, addr: usize) -> Option<&Area> {
        self.list[self.first_ending_after(addr)..]
            .iter()
            .find(|area| area.range.start() > addr)
    }

    /// The areas that have pages of `range`, lowest first.
    pub fn touching(&self, range: UserRange) -> impl Iterator<Item = &Area> {
        self.list[self.first_ending_after(range.start())..]
            .iter()
            .take_while(move |area| area.range.start() < range.end())
    }

    /// Whether no area touches `range`, and one may be there.
    pub fn is_free(&self, range: UserRange) -> bool {
        let next = self.list.get(self.first_ending_after(range.start()));
        !range.touches_windows() && next.is_none_or(|area| area.range.start() >= range.end())
    }

    /// Whether every page of `range` belongs to some area.
    pub fn covers(&self, range: UserRange) -> bool {
        let mut position = range.start();
        for area in &self.list[self.first_ending_after(range.start())..] {
            if area.range.start() > position {
                return false;
            }
            position = area.range.end();
            if position >= range.end() {
                return true;
            }
        }
        false
    }

    /// The free space around `range`, which must itself be free: the end of the area below it (0
    /// without one) and the start of the area above it (`usize::MAX` without one).
    pub fn gap_around(&self, range: UserRange) -> (usize, usize) {
        let index = self.first_ending_after(range.start());
        let below = index.checked_sub(1).map_or(0, |i| self.list[i].range.end());
        let above = self
            .list
            .get(index)
            .map_or(usize::MAX, |area| area.range.start());
        (below, above)
    }

    /// The highest free range of `len` bytes inside `floor..ceiling`.
    pub fn find_gap(&self, len: usize, floor: usize, ceiling: usize) -> Option<UserRange> {
        let above = self.find_gap_beside_windows(len, floor, ceiling);
        match above.filter(|range| range.touches_windows()) {
            Some(_) => self.find_gap_beside_windows(len, floor, WINDOWS.start),
            None => above,
        }
    }

    /// The same, but it may be where only windows may be.
    fn find_gap_beside_windows(
        &self,
        len: usize,
        floor: usize,
        ceiling: usize,
    ) -> Option<UserRange> {
        let mut top = ceiling;
        for area in self.list.iter().rev() {
            if top >= area.range.end() && top - area.range.end() >= len {
                break;
            }
            top = top.min(area.range.start());
        }
        let start = top.checked_sub(len)?;
        if start < floor {
            return None;
        }
        UserRange::from_bounds(start, top)
    }

    /// Adds an area in place of whatever its range holds.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] when there are too many areas or the kernel heap is full, or where windows are; nothing is
    /// changed then.
    pub fn replace(&mut self, area: Area) -> Result<(), MapError> {
        if area.range.touches_windows() {
            return Err(MapError::NoMemory);
        }
        self.reserve(self.splits(area.range) + 1)?;
        let (first, behind) = self.isolate(area.range);
        self.list.drain(first..behind);
        self.list.insert(first, area);
        self.merge_around(first, first + 1);
        Ok(())
    }

    /// Removes whatever lies in `range`, splitting areas at its ends.
    ///
    /// # Errors
    /// As [`replace`](Self::replace); nothing is changed then.
    pub fn remove(&mut self, range: UserRange) -> Result<(), MapError> {
        self.reserve(self.splits(range))?;
        let (first, behind) = self.isolate(range);
        self.list.drain(first..behind);
        Ok(())
    }

    /// Gives every area of `range` the rights `prot`, splitting at its ends and merging after.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] for a hole in the range, else as [`replace`](Self::replace); nothing is
    /// changed then.
    pub fn protect(&mut self, range: UserRange, prot: Prot) -> Result<(), MapError> {
        if !self.covers(range) {
            return Err(MapError::NoMemory);
        }
        self.reserve(self.splits(range))?;
        let (first, behind) = self.isolate(range);
        for area in &mut self.list[first..behind] {
            area.prot = prot;
        }
        self.merge_around(first, behind);
        Ok(())
    }

    /// Moves the start of the area that holds `range.end()` down to `range.start()`; the pages
    /// between must be free.
    pub fn grow_down(&mut self, range: UserRange) {
        assert!(self.is_free(range), "an area grew over another one");
        let index = self.first_ending_after(range.end());
        let area = &mut self.list[index];
        assert_eq!(
            area.range.start(),
            range.end(),
            "grow_down starts at an area"
        );
        if let Some(grown) = UserRange::from_bounds(range.start(), area.range.end()) {
            area.range = grown;
        }
    }

    /// Index of the first area that ends above `addr`.
    fn first_ending_after(&self, addr: usize) -> usize {
        self.list.partition_point(|area| area.range.end() <= addr)
    }

    /// Makes room for `more` areas, within the limit. Changes that add no more than these cannot fail
    /// afterwards.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn reserve(&mut self, more: usize) -> Result<(), MapError> {
        if self.list.len() + more > MAX_AREAS {
            return Err(MapError::NoMemory);
        }
        self.list.try_reserve(more).map_err(|_| MapError::NoMemory)
    }

    /// How many areas [`isolate`](Self::isolate) will add.
    fn splits(&self, range: UserRange) -> usize {
        let crosses = |addr| {
            self.find(addr)
                .is_some_and(|area| area.range.start() < addr)
        };
        usize::from(crosses(range.start())) + usize::from(crosses(range.end()))
    }

    /// Splits areas so that none crosses an end of `range`; the indexes of those inside. Room for
    /// [`splits`](Self::splits) more areas must be reserved.
    fn isolate(&mut self, range: UserRange) -> (usize, usize) {
        let first = self.split_at(range.start());
        let behind = self.split_at(range.end());
        (first, behind)
    }

    /// Makes `addr` a border; the index of the first area at or above it.
    fn split_at(&mut self, addr: usize) -> usize {
        let index = self.first_ending_after(addr);
        let Some(area) = self.list.get(index) else {
            return index;
        };
        let halves = (
            UserRange::from_bounds(area.range.start(), addr),
            UserRange::from_bounds(addr, area.range.end()),
        );
        // Only an area that really crosses `addr` has two non-empty halves.
        let (Some(low), Some(high)) = halves else {
            return index;
        };
        let high = Area {
            range: high,
            ..area.clone()
        };
        self.list[index].range = low;
        self.list.insert(index + 1, high);
        index + 1
    }

    /// Merges equal neighbours among the areas `first - 1..=behind`, in one pass.
    fn merge_around(&mut self, first: usize, behind: usize) {
        let Some(last) = self.list.len().checked_sub(1).map(|last| last.min(behind)) else {
            return;
        };
        let mut kept = first.saturating_sub(1);
        for index in kept + 1..=last {
            let (low, high) = (&self.list[kept], &self.list[index]);
            let joined = UserRange::from_bounds(low.range.start(), high.range.end());
            match joined.filter(|_| low.continues(high)) {
                Some(range) => self.list[kept].range = range,
                None => {
                    kept += 1;
                    self.list.swap(kept, index);
                }
            }
        }
        if kept < last {
            self.list.drain(kept + 1..=last);
        }
    }
}
