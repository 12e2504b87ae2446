//! What to forget: ranges of pages.

/// Above this many pages a responder drops the whole space instead of page by page.
///
/// Linux uses the same figure (`tlb_single_page_flush_ceiling` in `arch/x86/mm/tlb.c`): beyond it, refilling
/// costs less than invalidating one by one.
pub const FLUSH_CEILING_PAGES: usize = 33;

/// The size of the pages in a range: the stride at which they are invalidated. A power of two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageSize {
    pub(super) shift: u8,
}

impl PageSize {
    /// 4 KiB.
    pub const SIZE_4K: Self = Self { shift: 12 };
    /// 16 KiB.
    pub const SIZE_16K: Self = Self { shift: 14 };
    /// 64 KiB.
    pub const SIZE_64K: Self = Self { shift: 16 };
    /// 2 MiB.
    pub const SIZE_2M: Self = Self { shift: 21 };
    /// 1 GiB.
    pub const SIZE_1G: Self = Self { shift: 30 };

    /// A page of `1 << shift` bytes.
    ///
    /// # Panics
    /// When `shift` is zero or not below the bits of an address.
    pub const fn from_shift(shift: u8) -> Self {
        assert!(
            shift > 0 && (shift as u32) < usize::BITS,
            "page size shift out of range"
        );
        Self { shift }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        1 << self.shift
    }
}

/// A half-open range of virtual addresses, made of pages of one size; or the whole space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlushRange {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) page_size: PageSize,
}

impl FlushRange {
    /// No page.
    pub const EMPTY: Self = Self {
        start: 0,
        end: 0,
        page_size: PageSize::SIZE_4K,
    };

    /// Everything: from address 0 to `usize::MAX`, by pages of 4 KiB. Compare with it before you go through pages.
    pub const WHOLE: Self = Self {
        start: 0,
        end: usize::MAX,
        page_size: PageSize::SIZE_4K,
    };

    /// The pages that `start..end` touches; both ends are widened to page boundaries (flushing more
    /// than asked is legal, I10). An end at the start gives an empty range. One below it, as `start + length` that wrapped at the top of the
    /// address space, and one that does not fit after rounding give [`WHOLE`](Self::WHOLE).
    pub const fn new(start: usize, end: usize, page_size: PageSize) -> Self {
        if end < start {
            return Self::WHOLE;
        }
        let first = start & !(page_size.bytes() - 1);
        let count = match end == start {
            true => 0,
            false => ((end - 1 - first) >> page_size.shift) + 1,
        };
        Self::pages(first, count, page_size)
    }

    /// `count` pages from the page that holds `start`; the [whole space](Self::WHOLE) when that does not fit.
    pub const fn pages(start: usize, count: usize, page_size: PageSize) -> Self {
        let start = start & !(page_size.bytes() - 1);
        let Some(bytes) = count.checked_mul(page_size.bytes()) else {
            return Self::WHOLE;
        };
        match start.checked_add(bytes) {
            Some(end) => Self {
                start,
                end,
                page_size,
            },
            None => Self::WHOLE,
        }
    }

    /// What a table translates that covers the region of size `covered` at `address`.
    pub(super) const fn of_table(address: usize, covered: PageSize) -> Self {
        let covered = Self::pages(address, 1, covered);
        Self::new(covered.start, covered.end, PageSize::SIZE_4K)
    }

    /// First address.
    pub const fn start(&self) -> usize {
        self.start
    }

    /// First address after the range.
    pub const fn end(&self) -> usize {
        self.end
    }

    /// The stride.
    pub const fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// How many pages the range has.
    pub const fn page_count(&self) -> usize {
        (self.end - self.start) >> self.page_size.shift
    }

    /// Whether the range has no page.
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether dropping the whole space is cheaper than going page by page.
    pub const fn exceeds_ceiling(&self) -> bool {
        self.page_count() > FLUSH_CEILING_PAGES
    }

    /// The first address of each page.
    pub fn iter_pages(&self) -> impl Iterator<Item = usize> + use<> {
        (self.start..self.end).step_by(self.page_size.bytes())
    }

    /// Whether the two have pages of one size, and none between them.
    pub(crate) fn extends_to(&self, other: &Self) -> bool {
        self.page_size == other.page_size && self.start <= other.end && other.start <= self.end
    }

    /// The smallest range that holds both, at the smaller of the two page sizes.
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return *other;
        }
        if other.is_empty() {
            return *self;
        }
        Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
            page_size: self.page_size.min(other.page_size),
        }
    }
}

/// Whether page-table pages were unlinked by the change that is flushed.
///
/// With [`Yes`](Self::Yes) only CPUs are skipped that have none of the tables loaded, and none acknowledges before it has flushed (I4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FreedTables {
    /// Only leaf entries changed.
    No,
    /// Page-table pages were unlinked and will be freed or reused. The range of the flush then covers
    /// everything that they translated, not just the pages that were mapped.
    Yes,
}
