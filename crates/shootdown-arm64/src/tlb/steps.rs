//! From pages to instructions.

use super::operand::{Granule, PageRange};

/// Pages of one size that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// An address in the first.
    pub start: usize,
    /// Their size.
    pub stride_bytes: usize,
    /// How many. Those beyond the end of the address space are left out.
    pub count: usize,
}

/// One instruction's share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Page(usize),
    Range(PageRange),
}

/// Most pages that one instruction names.
const MOST: usize = 32 << 16;

impl Pages {
    /// The instructions for them, with ranges of this granule where it is given and is the size of the pages: at most one for each value of SCALE, one for a last single page, and one for each 2^21 pages.
    pub(super) fn steps(mut self, ranges: Option<Granule>) -> impl Iterator<Item = Step> {
        let ranges = ranges.filter(|granule| granule.bytes() == self.stride_bytes);
        let beyond = (usize::MAX - self.start) / self.stride_bytes.max(1);
        self.count = self.count.min(beyond.saturating_add(1));
        core::iter::from_fn(move || {
            let start = self.start;
            let (step, pages) = match ranges {
                _ if self.count == 0 => return None,
                Some(granule) if self.count > 1 => {
                    let range = longest(start, granule, self.count);
                    (Step::Range(range), range.pages())
                }
                _ => (Step::Page(start), 1),
            };
            self.count -= pages;
            // Wraps only behind the last.
            self.start = start.wrapping_add(pages * self.stride_bytes);
            Some(step)
        })
    }

    /// How many instructions at most.
    pub(super) fn operations(self, ranges: Option<Granule>) -> usize {
        match ranges {
            Some(granule) if granule.bytes() == self.stride_bytes => 5 + self.count / MOST,
            _ => self.count,
        }
    }
}

/// The longest range that has no more than `count` pages, which are at least two.
fn longest(start: usize, granule: Granule, count: usize) -> PageRange {
    let scale = (0..4u8).rev().find(|scale| count >> (5 * scale + 1) != 0);
    let scale = scale.unwrap_or(0);
    let units = (count >> (5 * scale + 1)).min(32);
    PageRange {
        start,
        granule,
        scale,
        number: u8::try_from(units - 1).unwrap_or(31),
    }
}
