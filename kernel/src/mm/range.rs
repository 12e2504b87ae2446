//! [`UserRange`]: a page-aligned, non-empty piece of the user half. Parsed once at the system call,
//! trusted afterwards.

use super::error::MapError;
use super::layout::{PAGE_SIZE, USER_END, WINDOWS, page_ceil};

/// Page-aligned, non-empty, and inside the user half by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRange {
    start: usize,
    end: usize,
}

impl UserRange {
    /// The whole user half.
    pub const ALL: Self = Self {
        start: 0,
        end: USER_END,
    };

    /// The pages of `len` bytes from the page-aligned `start`; `len` is rounded up.
    ///
    /// # Errors
    /// [`MapError::Invalid`] for an unaligned start or an empty length, [`MapError::NoMemory`] when
    /// the range leaves the user half (what Linux answers for each).
    pub fn new(start: usize, len: usize) -> Result<Self, MapError> {
        if !start.is_multiple_of(PAGE_SIZE) || len == 0 {
            return Err(MapError::Invalid);
        }
        let len = page_ceil(len).ok_or(MapError::NoMemory)?;
        let end = start.checked_add(len).ok_or(MapError::NoMemory)?;
        if end > USER_END {
            return Err(MapError::NoMemory);
        }
        Ok(Self { start, end })
    }

    /// From page-aligned bounds; `None` if empty, unaligned or outside the user half.
    pub fn from_bounds(start: usize, end: usize) -> Option<Self> {
        let aligned = start.is_multiple_of(PAGE_SIZE) && end.is_multiple_of(PAGE_SIZE);
        (aligned && start < end && end <= USER_END).then_some(Self { start, end })
    }

    /// First address.
    pub const fn start(self) -> usize {
        self.start
    }

    /// First address behind the range.
    pub const fn end(self) -> usize {
        self.end
    }

    /// Length in bytes, never zero.
    pub const fn bytes(self) -> usize {
        self.end - self.start
    }

    /// The part that both have.
    pub fn intersect(self, other: Self) -> Option<Self> {
        Self::from_bounds(self.start.max(other.start), self.end.min(other.end))
    }

    /// Whether some page of it is where only windows may be.
    pub const fn touches_windows(self) -> bool {
        self.start < WINDOWS.end && WINDOWS.start < self.end
    }

    /// Whether `other` lies completely inside.
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The address of each page.
    pub fn pages(self) -> impl Iterator<Item = usize> {
        (self.start..self.end).step_by(PAGE_SIZE)
    }
}
