//! The mapped areas of one address space: which user addresses may be touched, and how.
//!
//! They are in a `tree`; every change reserves its room first, so it happens completely or not at all.

use super::error::MapError;
use super::file::FileArea;
use super::layout::WINDOWS;
use super::prot::Prot;
use super::range::UserRange;
use super::shared::SharedArea;
use super::tree::{self, End, Link, Tree};
use alloc::vec::Vec;
use core::iter;
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
    /// What `brk` made.
    Heap,
    /// Anonymous memory from `mmap`.
    Anonymous,
    /// A part of memory that forked processes share.
    Shared(SharedArea),
    /// A part of a file, whose pages are the file's own.
    SharedFile(FileArea),
    /// The same until somebody writes to a page: the area has a copy of that from then on.
    PrivateFile(FileArea),
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

    /// Whether its pages are neither other processes' nor a file's, but for what a fork has left.
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Anonymous | Self::Heap | Self::Stack)
    }

    /// The part of a file that faults find pages in.
    pub const fn shown(&self) -> Option<&FileArea> {
        match self {
            Self::SharedFile(shown) | Self::PrivateFile(shown) => Some(shown),
            _ => None,
        }
    }

    /// The same contents for an area that is moved from `old` to `new`.
    #[must_use]
    pub fn moved(self, old: usize, new: usize) -> Self {
        match self {
            Self::Shared(area) => Self::Shared(area.moved(old, new)),
            Self::SharedFile(area) => Self::SharedFile(area.moved(old, new)),
            Self::PrivateFile(area) => Self::PrivateFile(area.moved(old, new)),
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
            _ => false,
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

/// The areas of an address space, disjoint, and merged where equal neighbours touch.
#[derive(Debug, Default)]
pub struct Areas {
    tree: Tree,
    root: Link,
}

/// Areas that a change adds for as long as it lasts, one at each end of its range, beyond those that it reserves. There is always room for these.
const PASSING: usize = 2;
const _: () = assert!(MAX_AREAS + PASSING <= tree::MOST);

impl Areas {
    /// No areas.
    pub const fn new() -> Self {
        Self {
            tree: Tree::new(),
            root: None,
        }
    }

    /// The same without what others lend: that is not the child's.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] when the kernel heap is full.
    pub fn duplicate_for_child(&self) -> Result<Self, MapError> {
        let mut copy = Self::new();
        copy.reserve(self.tree.len())?;
        for area in self.iter().filter(|area| !area.is_for_guests()) {
            copy.root = copy.tree.put(copy.root, area.clone(), None);
        }
        Ok(copy)
    }

    /// A copy of all areas as a plain list.
    ///
    /// # Errors
    /// As [`duplicate_for_child`](Self::duplicate_for_child).
    pub fn to_list(&self) -> Result<Vec<Area>, MapError> {
        let mut list = Vec::new();
        let reserved = list.try_reserve_exact(self.tree.len());
        reserved.map_err(|_| MapError::NoMemory)?;
        list.extend(self.iter().cloned());
        Ok(list)
    }

    /// All areas from the lowest address up.
    pub fn iter(&self) -> impl Iterator<Item = &Area> {
        self.ending_after(0)
    }

    /// The area that holds `addr`.
    pub fn find(&self, addr: usize) -> Option<&Area> {
        self.first_ending_after(addr)
            .filter(|area| area.range.start() <= addr)
    }

    /// The lowest area that starts above `addr`.
    pub fn next_above(&self, addr: usize) -> Option<&Area> {
        let starts_above = |area: &Area| area.range.start() > addr;
        self.tree.first(self.root, End::Low, starts_above)
    }

    /// The areas that have pages of `range`, lowest first.
    pub fn touching(&self, range: UserRange) -> impl Iterator<Item = &Area> {
        self.ending_after(range.start())
            .take_while(move |area| area.range.start() < range.end())
    }

    /// Whether no area touches `range`, and one may be there.
    pub fn is_free(&self, range: UserRange) -> bool {
        !range.touches_windows() && self.touching(range).next().is_none()
    }

    /// Whether every page of `range` belongs to some area.
    pub fn covers(&self, range: UserRange) -> bool {
        let mut position = range.start();
        for area in self.touching(range) {
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
        let below = self.last_starting_before(self.root, range.start());
        let above = self.first_ending_after(range.start());
        (
            below.map_or(0, |area| area.range.end()),
            above.map_or(usize::MAX, |area| area.range.start()),
        )
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
        let top = self.tree.highest_gap(self.root, len, 0, ceiling)?;
        UserRange::from_bounds(top - len, top).filter(|range| range.start() >= floor)
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
        self.reserve(1 + self.growth_without(area.range))?;
        let (low, replaced, high) = self.isolate(area.range);
        self.tree.clear(replaced);
        let low = self.append(low, area, None);
        self.root = self.joined(low, high);
        Ok(())
    }

    /// Removes whatever lies in `range`, splitting areas at its ends. That cannot fail unless one area goes on at both.
    ///
    /// # Errors
    /// As [`replace`](Self::replace); nothing is changed then.
    pub fn remove(&mut self, range: UserRange) -> Result<(), MapError> {
        self.reserve(self.growth_without(range))?;
        let (low, gone, high) = self.isolate(range);
        self.tree.clear(gone);
        self.root = self.joined(low, high);
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
        let crosses = |addr| {
            self.find(addr)
                .is_some_and(|area| area.range.start() < addr)
        };
        let splits = usize::from(crosses(range.start())) + usize::from(crosses(range.end()));
        self.reserve(splits)?;
        let (mut low, mut inside, high) = self.isolate(range);
        while let Some(area) = self.tree.take(&mut inside, End::Low) {
            low = self.append(low, Area { prot, ..area }, None);
        }
        self.root = self.joined(low, high);
        Ok(())
    }

    /// Moves the start of the area that holds `range.end()` down to `range.start()`; the pages
    /// between must be free.
    pub fn grow_down(&mut self, range: UserRange) {
        assert!(self.is_free(range), "an area grew over another one");
        let (low, mut high) = self.tree.split(self.root, range.end());
        let area = self.tree.take(&mut high, End::Low);
        let area = area.filter(|area| area.range.start() == range.end());
        let mut area = area.expect("grow_down starts at an area");
        area.range = UserRange::from_bounds(range.start(), area.range.end()).unwrap_or(area.range);
        self.root = self.tree.put(low, area, high);
    }

    /// Panics unless operations take logarithmic time.
    #[cfg(not(target_os = "none"))]
    pub fn check(&self) {
        self.tree.check(self.root);
    }

    /// The lowest area that ends above `addr`.
    fn first_ending_after(&self, addr: usize) -> Option<&Area> {
        let ends_above = |area: &Area| area.range.end() > addr;
        self.tree.first(self.root, End::Low, ends_above)
    }

    /// These, lowest first.
    fn ending_after(&self, addr: usize) -> impl Iterator<Item = &Area> {
        let next = |area: &&Area| self.first_ending_after(area.range.end());
        iter::successors(self.first_ending_after(addr), next)
    }

    /// The highest area of a part that starts below `addr`.
    fn last_starting_before(&self, part: Link, addr: usize) -> Option<&Area> {
        let starts_below = |area: &Area| area.range.start() < addr;
        self.tree.first(part, End::High, starts_below)
    }

    /// Makes room for `more` areas, within the limit. Changes that add no more than these cannot fail
    /// afterwards.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn reserve(&mut self, more: usize) -> Result<(), MapError> {
        if self.tree.len() + more > MAX_AREAS {
            return Err(MapError::NoMemory);
        }
        self.tree.reserve(more + PASSING)
    }

    /// How many areas more there may be once there are none in `range`: of an area that goes on at both ends two are left.
    fn growth_without(&self, range: UserRange) -> usize {
        let area = self.find(range.start()).map(|area| area.range);
        let goes_on = |area: UserRange| area.start() < range.start() && area.end() > range.end();
        usize::from(area.is_some_and(goes_on))
    }

    /// Splits areas so that none crosses an end of `range`; those below it, inside and above. The root is theirs until they are [`joined`](Self::joined).
    fn isolate(&mut self, range: UserRange) -> (Link, Link, Link) {
        let root = self.root.take();
        let (low, rest) = self.cut(root, range.start());
        let (inside, high) = self.cut(rest, range.end());
        (low, inside, high)
    }

    /// The parts below and above `addr`; an area that crosses it is split.
    fn cut(&mut self, part: Link, addr: usize) -> (Link, Link) {
        let (mut low, high) = self.tree.split(part, addr);
        let last = self.last_starting_before(low, addr);
        if last.is_none_or(|last| last.range.end() <= addr) {
            return (low, high);
        }
        let Some(area) = self.tree.take(&mut low, End::High) else {
            unreachable!("it has a last one");
        };
        let half = |start, end| Area {
            range: UserRange::from_bounds(start, end).expect("it crosses `addr`"),
            ..area.clone()
        };
        let below = half(area.range.start(), addr);
        let above = half(addr, area.range.end());
        (
            self.tree.put(low, below, None),
            self.tree.put(None, above, high),
        )
    }

    /// One part, of `area` and of those below and above it. If the one below it continues in it, that one grows instead.
    fn append(&mut self, mut low: Link, mut area: Area, high: Link) -> Link {
        let last = self.last_starting_before(low, area.range.start());
        let last = last.filter(|last| last.continues(&area));
        let start = last.map(|last| last.range.start());
        if let Some(range) = start.and_then(|at| UserRange::from_bounds(at, area.range.end())) {
            self.tree.take(&mut low, End::High);
            area.range = range;
        }
        self.tree.put(low, area, high)
    }

    /// One part, of one and of another above it, merged where they touch.
    fn joined(&mut self, low: Link, mut high: Link) -> Link {
        match self.tree.take(&mut high, End::Low) {
            Some(first) => self.append(low, first, high),
            None => low,
        }
    }
}
