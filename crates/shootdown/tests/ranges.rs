//! Ranges against sets of bytes: nothing that was asked for is missing, and nothing comes that was not.

#![cfg(not(loom))]

use proptest::prelude::*;
use shootdown::flushes::FLUSH_CEILING_PAGES;
use shootdown::*;

const SIZES: [PageSize; 3] = [PageSize::SIZE_4K, PageSize::SIZE_2M, PageSize::SIZE_64K];

/// Addresses next to borders of pages of each size, from 0 to the last.
fn addresses() -> Vec<usize> {
    let borders = [0, 1 << 12, 3 << 12, 1 << 16, 1 << 21, 5 << 21, 1 << 40];
    let near = |border: usize| (0..3).flat_map(move |off| [border.wrapping_sub(off), border + off]);
    let mut all: Vec<usize> = borders.into_iter().flat_map(near).collect();
    all.push(usize::MAX - (1 << 21));
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn a_range_has_the_pages_that_it_touches_and_no_other() {
    for size in SIZES {
        let bytes = size.bytes();
        for start in addresses() {
            for end in addresses() {
                let range = FlushRange::new(start, end, size);
                if end == start {
                    assert!(range.is_empty(), "{start:#x}..{end:#x}");
                    continue;
                }
                if end < start {
                    // As `start + length` that wraps.
                    assert_eq!(range, FlushRange::WHOLE, "{start:#x}..{end:#x}");
                    continue;
                }
                let (first, last) = (start / bytes, (end - 1) / bytes);
                if last == usize::MAX / bytes {
                    assert_eq!(range, FlushRange::WHOLE, "{start:#x}..{end:#x}");
                    continue;
                }
                assert_eq!(
                    (range.start(), range.end(), range.page_size()),
                    (first * bytes, (last + 1) * bytes, size),
                    "{start:#x}..{end:#x}"
                );
                assert_eq!(range.page_count(), last - first + 1);
                if range.page_count() < 100 {
                    let pages: Vec<_> = range.iter_pages().collect();
                    let wanted: Vec<_> = (first..=last).map(|page| page * bytes).collect();
                    assert_eq!(pages, wanted);
                }
            }
        }
    }
}

#[test]
fn pages_are_counted_from_the_one_that_holds_the_start() {
    for size in SIZES {
        let bytes = size.bytes();
        for start in addresses() {
            for count in [0, 1, 2, 33, usize::MAX / bytes, usize::MAX] {
                let range = FlushRange::pages(start, count, size);
                let first = start / bytes;
                match first.checked_add(count) {
                    Some(end) if end <= usize::MAX / bytes => {
                        assert_eq!(
                            (range.start(), range.end()),
                            (first * bytes, end * bytes),
                            "{start:#x} {count}"
                        );
                    }
                    _ => assert_eq!(range, FlushRange::WHOLE, "{start:#x} {count}"),
                }
            }
        }
    }
}

prop_compose! {
    /// Ranges of pages near each other, of two sizes.
    fn some_range()(large in 0..4, start in 0usize..40, count in 0usize..20) -> FlushRange {
        FlushRange::pages(start << 12, count, SIZES[if large == 0 { 2 } else { 0 }])
    }
}

fn bytes_of(range: &FlushRange) -> std::ops::Range<usize> {
    range.start()..range.end()
}

fn covers(ranges: &FlushRanges, page: usize) -> bool {
    let holds = |range: FlushRange| {
        // The page of the range's own size is named, not an address within it.
        let named = page & !(range.page_size().bytes() - 1);
        range.iter_pages().any(|at| at == named) && bytes_of(&range).contains(&page)
    };
    ranges.is_whole() || ranges.iter().any(holds)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_union_begins_with_the_first_page_and_ends_with_the_last(
        one in some_range(),
        other in some_range(),
    ) {
        let union = one.union(&other);
        match (one.is_empty(), other.is_empty()) {
            (true, _) => prop_assert_eq!(union, other),
            (_, true) => prop_assert_eq!(union, one),
            _ => {
                prop_assert_eq!(union.start(), one.start().min(other.start()));
                prop_assert_eq!(union.end(), one.end().max(other.end()));
                prop_assert_eq!(union.page_size(), one.page_size().min(other.page_size()));
            }
        }
    }

    #[test]
    fn ranges_keep_every_page_that_was_added(added in prop::collection::vec(some_range(), 0..6)) {
        let mut ranges = FlushRanges::EMPTY;
        added.iter().for_each(|range| ranges.add(*range));
        let filled: Vec<_> = added.iter().copied().filter(|range| !range.is_empty()).collect();
        prop_assert_eq!(ranges.is_empty(), filled.is_empty());
        for page in filled.iter().flat_map(FlushRange::iter_pages) {
            prop_assert!(covers(&ranges, page), "{:?}", ranges);
        }
        if filled.len() <= 1 {
            prop_assert!(ranges.iter().eq(filled));
        }
        if !ranges.is_whole() {
            let named: usize = ranges.iter().map(|range| range.page_count()).sum();
            prop_assert_eq!(ranges.exceeds_ceiling(), named > FLUSH_CEILING_PAGES);
        }
    }
}

/// The borders of what a request can hold.
#[test]
fn sixty_three_pages_are_named_and_one_more_is_everything() {
    for size in SIZES {
        for (count, is_whole) in [(1, false), (32, false), (63, false), (64, true)] {
            let range = FlushRange::pages(7 << 21, count, size);
            let ranges = FlushRanges::from(range);
            assert_eq!(ranges.is_whole(), is_whole, "{count} of {size:?}");
            let named = if is_whole { FlushRange::WHOLE } else { range };
            assert!(ranges.iter().eq([named]));
            let mut added = FlushRanges::EMPTY;
            added.add(range);
            assert_eq!(added, ranges);
        }
    }
}

#[test]
fn three_ranges_are_kept_apart_and_a_fourth_goes_to_the_nearest() {
    let page = |at: usize| FlushRange::pages(at << 12, 1, PageSize::SIZE_4K);
    let mut ranges = FlushRanges::EMPTY;
    for at in [100, 3, 50] {
        ranges.add(page(at));
    }
    assert!(ranges.iter().eq([page(100), page(3), page(50)]));
    ranges.add(page(52));
    let joined = FlushRange::pages(50 << 12, 3, PageSize::SIZE_4K);
    assert!(ranges.iter().eq([page(100), page(3), joined]));
    ranges.add(page(4));
    let joined_low = FlushRange::pages(3 << 12, 2, PageSize::SIZE_4K);
    assert!(ranges.iter().eq([page(100), joined_low, joined]));
}

fn pages(first: usize, count: usize) -> FlushRange {
    FlushRange::pages(first << 12, count, PageSize::SIZE_4K)
}

fn all(ranges: [FlushRange; 3]) -> FlushRanges {
    let mut all = FlushRanges::EMPTY;
    ranges.into_iter().for_each(|range| all.add(range));
    all
}

#[test]
fn no_page_adds_nothing_and_to_everything_nothing_is_added() {
    let known = all([pages(100, 1), pages(200, 1), pages(300, 1)]);
    let mut more = known;
    more.add(pages(0, 0));
    assert_eq!(more, known);
    for size in SIZES {
        let mut whole = FlushRanges::WHOLE;
        whole.add(FlushRange::pages(5 << 21, 1, size));
        assert_eq!(whole, FlushRanges::WHOLE);
    }
}

/// It counts how many pages come between, not how large the two are.
#[test]
fn a_fourth_range_joins_the_nearest() {
    let mut ranges = all([pages(111, 10), pages(95, 2), pages(500, 1)]);
    ranges.add(pages(100, 5));
    let expected = [pages(111, 10), pages(95, 10), pages(500, 1)];
    assert!(ranges.iter().eq(expected), "{ranges:?}");
}
