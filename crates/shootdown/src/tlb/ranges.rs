//! [`FlushRanges`]: up to three ranges in one request.
//!
//! A request has room for three words of ranges. A word has the number of the first 4 KiB page, how many pages there are and of
//! which size; what does not fit is dropped as a whole, which is legal (I10) and, beyond the ceiling, cheaper.

use core::fmt;

use crate::tlb::{FLUSH_CEILING_PAGES, FlushRange, FreedTables, PageSize};

/// Ranges that one flush names apart.
pub const RANGES: usize = 3;

/// What to forget: up to three ranges of pages; or the whole space.
///
/// A further range is merged with the one to which it adds the fewest pages. More than 63 pages, and pages below 4 KiB, are the
/// whole space.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlushRanges {
    words: RangeWords,
    /// The lowest address and the one behind the highest, also of more pages than the words name.
    start: usize,
    end: usize,
}

impl FlushRanges {
    /// No page.
    pub const EMPTY: Self = Self {
        words: RangeWords::EMPTY,
        start: usize::MAX,
        end: 0,
    };

    /// Everything.
    pub const WHOLE: Self = Self {
        words: RangeWords::WHOLE,
        start: 0,
        end: usize::MAX,
    };

    /// The same, strictly: when the wait for the flush has returned, no CPU *holds* an old translation of them under a loaded tag, and what one holds under a tag
    /// that is not loaded is dropped before the tag is. No target acknowledges early, and none is left out that looks later.
    ///
    /// For changes in which the old entry and the new one must not be cached side by side: break before make on Arm, where the page size or the
    /// output address changes, and changes of the page size on x86 parts on which two sizes at once are a machine check (Intel: ITLB multihit,
    /// CVE-2018-12207; AMD family 10h: erratum 383). Clear the entry, flush strictly, wait, write the new one. An ordinary
    /// flush promises less: that no use of the old translations begins any more.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.words = self.words.strict();
        self
    }

    /// Whether they are flushed [strictly](Self::strict).
    #[inline]
    pub const fn is_strict(&self) -> bool {
        self.words.is_strict()
    }

    /// Adds a range.
    pub fn add(&mut self, range: FlushRange) {
        self.words.add(range);
        if !range.is_empty() {
            self.start = self.start.min(range.start);
            self.end = self.end.max(range.end);
        }
    }

    /// Adds all of `more`; the result is strict if either is.
    pub(super) fn merge(&mut self, more: &Self) {
        self.words.merge(&more.words);
        self.start = self.start.min(more.start);
        self.end = self.end.max(more.end);
    }

    /// What a request says of them: everything, where that is cheaper; and whether tables were freed.
    #[inline]
    pub(super) fn requested(&self, freed: FreedTables) -> RangeWords {
        self.words.requested(freed)
    }

    /// The same of everything, as strictly.
    pub(super) fn requested_whole(&self, freed: FreedTables) -> RangeWords {
        self.words.widened().requested(freed)
    }

    /// The lowest address and the highest; of no page they are nothing of the sort.
    pub(super) const fn span(&self) -> (usize, usize) {
        (self.start, self.end.wrapping_sub(1))
    }

    /// The ranges.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = FlushRange> + use<> {
        self.words.iter()
    }

    /// Whether there is no page.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether everything is to be forgotten.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.words.is_whole()
    }

    /// Whether dropping the whole space is cheaper than going page by page.
    #[inline]
    pub fn exceeds_ceiling(&self) -> bool {
        self.words.exceeds_ceiling()
    }
}

impl From<FlushRange> for FlushRanges {
    #[inline]
    fn from(range: FlushRange) -> Self {
        Self {
            words: RangeWords([Word::of(&range), Word::NONE, Word::NONE]),
            start: range.start,
            end: range.end,
        }
    }
}

impl fmt::Debug for FlushRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}

/// Three words, as a request has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RangeWords(
    /// The mark of the first word says that tables were freed: only in a request. That of the second says that the flush is strict.
    [Word; RANGES],
);

impl RangeWords {
    /// No page.
    pub(super) const EMPTY: Self = Self([Word::NONE; RANGES]);

    /// Everything.
    pub(super) const WHOLE: Self = Self([Word::WHOLE, Word::NONE, Word::NONE]);

    /// See [`FlushRanges::strict`].
    #[must_use]
    pub(super) const fn strict(mut self) -> Self {
        self.0[1].0 |= Word::MARK;
        self
    }

    /// Whether they are flushed [strictly](Self::strict).
    #[inline]
    pub(super) const fn is_strict(&self) -> bool {
        self.0[1].0 & Word::MARK != 0
    }

    /// Adds all of `more`; the result is strict if either is.
    pub(super) fn merge(&mut self, more: &Self) {
        more.iter().for_each(|range| self.add(range));
        self.0[1].0 |= more.0[1].0 & Word::MARK;
    }

    /// Adds a range.
    pub(super) fn add(&mut self, range: FlushRange) {
        if range.is_empty() || self.is_whole() {
            return;
        }
        let added_pages = |known: &FlushRange| {
            let apart = known.page_count() + range.page_count();
            known.union(&range).page_count().saturating_sub(apart)
        };
        let used = self.iter().count();
        let known = self.iter().enumerate();
        let nearest = known.min_by_key(|(_, known)| added_pages(known));
        let (at, range) = match nearest {
            Some((at, known)) if used == RANGES || known.extends_to(&range) => {
                (at, known.union(&range))
            }
            _ => (used, range),
        };
        match Word::of(&range) {
            Word::WHOLE => *self = self.widened(),
            word => self.0[at].0 = word.0 | self.0[at].0 & Word::MARK,
        }
    }

    /// Everything, as strictly.
    pub(super) fn widened(&self) -> Self {
        match self.is_strict() {
            true => Self::WHOLE.strict(),
            false => Self::WHOLE,
        }
    }

    /// What a request says of them: everything, where that is cheaper; and whether tables were freed.
    #[inline]
    pub(super) fn requested(&self, freed: FreedTables) -> Self {
        let ranges = match self.exceeds_ceiling() {
            true => self.widened(),
            false => *self,
        };
        match freed {
            FreedTables::No => ranges,
            FreedTables::Yes => ranges.with_freed(),
        }
    }

    /// The same request, as if tables were freed.
    #[inline]
    pub(super) const fn with_freed(mut self) -> Self {
        self.0[0].0 |= Word::MARK;
        self
    }

    /// Whether the request says that tables were freed.
    #[inline]
    pub(super) fn freed_tables(&self) -> FreedTables {
        match self.0[0].0 & Word::MARK {
            0 => FreedTables::No,
            _ => FreedTables::Yes,
        }
    }

    /// The ranges.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = FlushRange> + use<> {
        let words = self.0.into_iter().map(Word::unmarked);
        let is_used = |word: &Word| *word != Word::NONE;
        words.take_while(is_used).map(Word::range)
    }

    /// Whether there is no page.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0[0].unmarked() == Word::NONE
    }

    /// Whether everything is to be forgotten.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.0[0].unmarked() == Word::WHOLE
    }

    /// How many pages there are, if it is not everything.
    #[inline]
    pub(crate) fn page_count(&self) -> usize {
        self.0.iter().map(|word| word.page_count()).sum()
    }

    /// Whether dropping the whole space is cheaper than going page by page.
    #[inline]
    pub(super) fn exceeds_ceiling(&self) -> bool {
        self.is_whole() || self.page_count() > FLUSH_CEILING_PAGES
    }
}

impl fmt::Debug for RangeWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_strict() {
            f.write_str("strict ")?;
        }
        if self.freed_tables() == FreedTables::Yes {
            f.write_str("with freed tables ")?;
        }
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One range in a word, with a mark that says nothing about the range.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Word(u64);

impl Word {
    /// No range.
    const NONE: Self = Self(0);
    /// Everything: no range has pages of this size.
    const WHOLE: Self = Self(Self::SIZE_MASK << Self::SIZE_SHIFT);
    /// Address bits that every page has zero.
    const PAGE_SHIFT: u8 = 12;
    /// From above: the mark, size, count, number of the first page.
    const MARK: u64 = 1 << 63;
    const SIZE_SHIFT: u32 = 58;
    const SIZE_MASK: u64 = 0x1f;
    const COUNT_SHIFT: u32 = 52;
    const COUNT_MASK: u64 = 0x3f;

    #[inline]
    fn of(range: &FlushRange) -> Self {
        let count = range.page_count() as u64;
        let size = range.page_size.shift.wrapping_sub(Self::PAGE_SHIFT);
        if count == 0 {
            return Self::NONE;
        }
        if count > Self::COUNT_MASK || u64::from(size) >= Self::SIZE_MASK {
            return Self::WHOLE;
        }
        let start = range.start as u64 >> Self::PAGE_SHIFT;
        Self(u64::from(size) << Self::SIZE_SHIFT | count << Self::COUNT_SHIFT | start)
    }

    #[inline]
    fn unmarked(self) -> Self {
        Self(self.0 & !Self::MARK)
    }

    #[inline]
    fn page_count(self) -> usize {
        (self.0 >> Self::COUNT_SHIFT & Self::COUNT_MASK) as usize
    }

    /// The range of a word without its mark.
    #[inline]
    fn range(self) -> FlushRange {
        if self == Self::WHOLE {
            return FlushRange::WHOLE;
        }
        let start = (self.0 << Self::PAGE_SHIFT) as usize;
        let shift = Self::PAGE_SHIFT + (self.0 >> Self::SIZE_SHIFT & Self::SIZE_MASK) as u8;
        FlushRange {
            start,
            end: start.wrapping_add(self.page_count() << shift),
            page_size: PageSize { shift },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::FlushRanges;
    use crate::tlb::{FlushRange, FreedTables, PageSize};

    extern crate std;
    use std::vec::Vec;

    const PAGE: usize = 4096;

    fn pages(first: usize, count: usize) -> FlushRange {
        FlushRange::pages(first * PAGE, count, PageSize::SIZE_4K)
    }

    fn ranges(all: &[FlushRange]) -> FlushRanges {
        let mut ranges = FlushRanges::EMPTY;
        all.iter().for_each(|range| ranges.add(*range));
        ranges
    }

    #[test]
    fn three_ranges_stay_apart_and_a_fourth_joins_its_neighbour() {
        let three = [pages(1, 1), pages(100, 2), pages(10_000, 3)];
        assert!(ranges(&three).iter().eq(three));
        let four = ranges(&[three[0], three[1], three[2], pages(104, 1)]);
        assert!(four.iter().eq([three[0], pages(100, 5), three[2]]));
        let adjacent = ranges(&[pages(5, 1), pages(6, 1), pages(4, 1)]);
        assert!(adjacent.iter().eq([pages(4, 3)]));
    }

    #[test]
    fn what_travels_comes_out_again() {
        let high = FlushRange::pages(0usize.wrapping_sub(8 * PAGE), 2, PageSize::SIZE_4K);
        let large = FlushRange::pages(1 << 40, 3, PageSize::SIZE_1G);
        for all in [&[pages(7, 1)][..], &[pages(1, 1), high, large]] {
            for freed in [FreedTables::No, FreedTables::Yes] {
                let packed = ranges(all).requested(freed);
                assert_eq!(packed.iter().collect::<Vec<_>>(), all);
                assert_eq!(packed.freed_tables(), freed);
                assert!(!packed.is_whole());
            }
        }
    }

    /// Of what a request calls everything it is known where it is.
    #[test]
    fn many_pages_are_somewhere() {
        let many = ranges(&[pages(100, 2000), pages(7, 1)]);
        assert!(many.is_whole());
        assert_eq!(many.span(), (7 * PAGE, 2100 * PAGE - 1));
        let mut more = FlushRanges::EMPTY;
        more.merge(&many);
        more.add(pages(9000, 0));
        more.add(pages(5000, 1));
        assert_eq!(more.span(), (7 * PAGE, 5001 * PAGE - 1));
        assert_eq!(
            FlushRanges::from(pages(1, 99)).span(),
            (PAGE, 100 * PAGE - 1)
        );
    }

    #[test]
    fn what_does_not_fit_is_everything() {
        let halves = FlushRange::pages(0, 2, PageSize::from_shift(11));
        let many = [pages(0, 20), pages(100, 20)];
        for all in [
            ranges(&[pages(0, 34)]),
            ranges(&many),
            ranges(&[halves]),
            ranges(&[pages(1, 1), halves]),
            FlushRanges::WHOLE,
        ] {
            let packed = all.requested(FreedTables::No);
            assert!(packed.is_whole(), "{all:?}");
            assert!(packed.iter().eq([FlushRange::WHOLE]));
        }
        assert_eq!(FlushRanges::EMPTY.iter().count(), 0);
    }
}
