//! Pages of a file by their numbers.

use crate::mm::layout::PAGE_SIZE;
use crate::mm::page_table::LEAF_TABLE_BYTES;
use crate::mm::range::UserRange;

/// Largest size of a file.
pub const MAX_BYTES: u64 = 1 << 40;

/// Pages that are looked at under the lock of the contents, and stored pages that are put down as dirty again.
pub(super) const PIECE_PAGES: u32 = (LEAF_TABLE_BYTES / PAGE_SIZE) as u32;

/// The number of the page at an offset; sizes are bounded so that it fits.
pub(super) const fn number_of(offset: usize) -> u32 {
    (offset / PAGE_SIZE) as u32
}

/// Where a page is.
pub(super) const fn offset_of(page: u32) -> usize {
    page as usize * PAGE_SIZE
}

/// Consecutive pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// The first one.
    pub first: u32,
    /// One past the last one.
    pub end: u32,
}

impl PageRange {
    /// Every page that a file can have.
    pub const WHOLE: Self = Self {
        first: 0,
        end: (MAX_BYTES / PAGE_SIZE as u64) as u32,
    };

    /// The pages of a file that have bytes from offset `start` to `end`, neither of which needs to be in the file.
    pub fn of_bytes(start: usize, end: usize) -> Self {
        let number = |page: usize| {
            u32::try_from(page)
                .unwrap_or(Self::WHOLE.end)
                .min(Self::WHOLE.end)
        };
        Self {
            first: number(start / PAGE_SIZE),
            end: number(end.div_ceil(PAGE_SIZE)),
        }
    }

    pub(super) fn holds(self, page: u32) -> bool {
        (self.first..self.end).contains(&page)
    }

    /// As offsets; `None` if it is empty.
    pub(super) fn offsets(self) -> Option<UserRange> {
        UserRange::from_bounds(offset_of(self.first), offset_of(self.end))
    }

    /// The same pages in pieces of bounded size.
    pub(super) fn pieces(self) -> impl Iterator<Item = Self> {
        (self.first..self.end)
            .step_by(PIECE_PAGES as usize)
            .map(move |first| Self {
                first,
                end: self.end.min(first + PIECE_PAGES),
            })
    }
}
