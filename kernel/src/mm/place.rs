//! Where new mappings go: in a space that threads share each has a region of its own, so that discarding it concerns only the CPUs that the thread ran on.

use super::error::MapError;
use super::layout::{MMAP_TOP, PIE_BASE, TOP_ENTRY_BYTES, USER_START, page_ceil};
use super::map::{MapRequest, Placement};
use super::range::UserRange;
use super::space::Inner;
use crate::arch::percpu;
use crate::arch::top::region_of;
use core::ops::Range;

/// The region where mappings without a place go otherwise, and below it those of threads.
const COMMON: usize = region_of(MMAP_TOP - 1);
/// Those of threads whose stack is in nobody's region.
const HOMES: Range<usize> = 1..COMMON / 2;

/// Whether stacks are placed in this region.
pub const fn is_of_stacks(region: usize) -> bool {
    region >= HOMES.end && region < COMMON && region != region_of(PIE_BASE)
}

impl Inner {
    /// The range a request gets; with [`Placement::Fixed`] it may be occupied.
    pub(super) fn place(&mut self, request: &MapRequest) -> Result<UserRange, MapError> {
        let len = page_ceil(request.len).filter(|len| *len > 0);
        let len = len.ok_or(if request.len == 0 {
            MapError::Invalid
        } else {
            MapError::NoMemory
        })?;
        let wished = UserRange::new(request.addr, len).ok();
        let wished = wished.filter(|r| r.start() >= USER_START && self.areas.is_free(*r));
        let found = match request.placement {
            Placement::Anywhere => wished,
            Placement::Home(home) => {
                let home = home.unwrap_or_else(|| self.next_home());
                // A hint that leads elsewhere was computed from another thread's mapping, as glibc does for its arenas.
                let is_at_home = |range: &UserRange| region_of(range.start()) == home;
                let wished = wished.filter(is_at_home);
                wished.or_else(|| self.gap_in(home, len))
            }
            Placement::Fresh => {
                let is_nobodys = |range: &UserRange| {
                    !self.table.keeps_top() || self.is_unused(region_of(range.start()))
                };
                match wished.filter(is_nobodys) {
                    None => (self.unused_region()).and_then(|region| self.gap_in(region, len)),
                    wished => wished,
                }
            }
            Placement::Fixed | Placement::FixedIfFree => {
                let range = UserRange::new(request.addr, len)?;
                let is_refused = request.placement == Placement::FixedIfFree;
                return match () {
                    () if range.start() < USER_START => Err(MapError::Forbidden),
                    () if is_refused && !self.areas.is_free(range) => Err(MapError::Exists),
                    () => Ok(range),
                };
            }
        };
        let found = found.or_else(|| self.areas.find_gap(len, USER_START, MMAP_TOP));
        found.ok_or(MapError::NoMemory)
    }

    /// The highest free range of `len` bytes in a region.
    pub(super) fn gap_in(&self, region: usize, len: usize) -> Option<UserRange> {
        let start = region * TOP_ENTRY_BYTES;
        let floor = start.max(USER_START);
        self.areas
            .find_gap(len, floor, MMAP_TOP.min(start + TOP_ENTRY_BYTES))
    }

    /// A region without areas, if there is one, for a stack, which is there as long as its thread. Where this CPU has placed one before, so that what it has taken is
    /// taken by nobody else; not where others have, if it can be helped.
    fn unused_region(&mut self) -> Option<usize> {
        let me = percpu::cpu_id().index();
        let is_others = |region: &usize| self.stacks.iter().any(|of| usize::from(*of) == *region);
        let is_free = |region: &usize| is_of_stacks(*region) && self.is_unused(*region);
        let mut free = (HOMES.end..COMMON).rev().filter(is_free);
        let own = Some(usize::from(self.stacks[me])).filter(is_free);
        let first = free.clone().next();
        let region = own
            .or_else(|| free.find(|region| !is_others(region)))
            .or(first)?;
        self.stacks[me] = region as u8;
        Some(region)
    }

    /// A region for a thread that has none. It may come to have nothing there, so another gets the next.
    fn next_home(&mut self) -> usize {
        let turns =
            (1..=HOMES.len()).map(|turn| HOMES.start + (self.last_home + turn) % HOMES.len());
        let found = turns.clone().find(|region| self.is_unused(*region));
        let home = found.unwrap_or(HOMES.start + (self.last_home + 1) % HOMES.len());
        self.last_home = home - HOMES.start;
        home
    }

    fn is_unused(&self, region: usize) -> bool {
        let start = region * TOP_ENTRY_BYTES;
        let range = UserRange::from_bounds(start, start + TOP_ENTRY_BYTES);
        range.is_some_and(|range| self.areas.is_free(range))
    }
}
