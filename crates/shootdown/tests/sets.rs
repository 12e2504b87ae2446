//! Properties of CPU sets and flush ranges.

#![cfg(not(loom))]

use shootdown::Cpus;
use std::collections::BTreeSet;

use proptest::prelude::*;
use shootdown::flushes::FLUSH_CEILING_PAGES;
use shootdown::tags::*;
use shootdown::*;

const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

fn set_of<const N: usize>(mask: &CpuMask<Cpus<N>>) -> BTreeSet<u32>
where
    Cpus<N>: Capacity,
{
    mask.iter().map(CpuId::as_u32).collect()
}

fn mask_of<const N: usize>(set: &BTreeSet<u32>) -> CpuMask<Cpus<N>>
where
    Cpus<N>: Capacity,
{
    set.iter().map(|number| CpuId::new(*number)).collect()
}

/// A mask behaves as a set of numbers.
fn behaves_as_a_set<const N: usize>(left: &BTreeSet<u32>, right: &BTreeSet<u32>, probe: u32)
where
    Cpus<N>: Capacity,
{
    let within = |set: &BTreeSet<u32>| set.iter().copied().filter(|n| (*n as usize) < N).collect();
    let (left, right): (BTreeSet<u32>, BTreeSet<u32>) = (within(left), within(right));
    let (a, b) = (mask_of::<N>(&left), mask_of::<N>(&right));
    assert_eq!(set_of(&a), left);
    assert_eq!((a.len(), a.is_empty()), (left.len(), left.is_empty()));
    let view = a.as_set();
    assert_eq!((view.len(), view.is_empty()), (left.len(), left.is_empty()));
    assert_eq!(a.contains(CpuId::new(probe)), left.contains(&probe));
    assert_eq!(a == b, left == right);
    let combine = |operation: fn(&mut CpuMask<Cpus<N>>, &CpuMask<Cpus<N>>)| {
        let mut result = a;
        operation(&mut result, &b);
        set_of(&result)
    };
    assert_eq!(combine(CpuMask::unite), &left | &right);
    assert_eq!(combine(CpuMask::intersect), &left & &right);
    assert_eq!(combine(CpuMask::subtract), &left - &right);
    let (mut mask, mut set) = (a, left);
    assert_eq!(mask.remove(CpuId::new(probe)), set.remove(&probe));
    if (probe as usize) < N {
        assert_eq!(mask.insert(CpuId::new(probe)), set.insert(probe));
    }
    assert_eq!(set_of(&mask), set);
}

/// The number `N` would be number 0 of a set whose words are full.
#[test]
fn a_mask_has_no_cpu_beyond_its_last() {
    fn refuses<const N: usize>()
    where
        Cpus<N>: Capacity,
    {
        let cpu = |number: usize| CpuId::new(number as u32);
        assert!(CpuMask::<Cpus<N>>::only(cpu(N - 1)).contains(cpu(N - 1)));
        for number in [N, N + 1, 2 * N] {
            let only = std::panic::catch_unwind(|| CpuMask::<Cpus<N>>::only(cpu(number)));
            assert!(only.is_err(), "{number} of {N}");
        }
    }
    refuses::<1>();
    refuses::<4>();
    refuses::<64>();
    refuses::<256>();
}

fn numbers() -> impl Strategy<Value = BTreeSet<u32>> {
    proptest::collection::btree_set(0u32..300, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn masks_behave_as_sets(left in numbers(), right in numbers(), probe in 0u32..300) {
        behaves_as_a_set::<1>(&left, &right, probe);
        behaves_as_a_set::<4>(&left, &right, probe);
        behaves_as_a_set::<64>(&left, &right, probe);
        behaves_as_a_set::<256>(&left, &right, probe);
    }

    #[test]
    fn first_is_the_lowest_numbers(count in 0usize..=256) {
        let expected: BTreeSet<u32> = (0..count as u32).collect();
        prop_assert_eq!(set_of(&CpuMask::<Cpus<256>>::first(count)), expected);
    }

    #[test]
    fn a_range_covers_every_byte_that_was_asked(start: usize, len in 0usize..1 << 40, shift in 12u8..31) {
        let size = PageSize::from_shift(shift);
        let end = start.saturating_add(len);
        let range = FlushRange::new(start, end, size);
        if end > start {
            prop_assert!(range.start() <= start && range.end() >= end);
            prop_assert!(range == FlushRange::WHOLE || range.start() % size.bytes() == 0);
        } else {
            prop_assert!(range.is_empty());
        }
        if range.page_count() <= 1000 {
            let pages: Vec<usize> = range.iter_pages().collect();
            prop_assert_eq!(pages.len(), range.page_count());
            prop_assert!(pages.windows(2).all(|pair| pair[1] - pair[0] == size.bytes()));
        }
    }

    #[test]
    fn a_union_covers_both(a in 0usize..1 << 30, b in 0usize..1 << 30, n in 0usize..50, m in 0usize..50) {
        let left = FlushRange::pages(a, n, PageSize::SIZE_4K);
        let right = FlushRange::pages(b, m, PageSize::SIZE_2M);
        let both = left.union(&right);
        for part in [left, right] {
            prop_assert!(part.is_empty() || both.start() <= part.start() && both.end() >= part.end());
        }
        if n > 0 && m > 0 {
            prop_assert_eq!(both, right.union(&left));
            prop_assert_eq!(both.page_size(), PageSize::SIZE_4K);
        }
    }
}

#[test]
fn ranges_at_the_end_of_memory_become_the_whole() {
    assert_eq!(
        FlushRange::new(usize::MAX - 5, usize::MAX, PageSize::SIZE_4K),
        FlushRange::WHOLE
    );
    assert_eq!(
        FlushRange::pages(usize::MAX - 5, 1, PageSize::SIZE_4K),
        FlushRange::WHOLE
    );
    assert_eq!(
        FlushRange::pages(0, usize::MAX, PageSize::SIZE_4K),
        FlushRange::WHOLE
    );
    assert!(FlushRange::WHOLE.exceeds_ceiling());
    assert!(!FlushRange::pages(0, FLUSH_CEILING_PAGES, PageSize::SIZE_4K).exceeds_ceiling());
    assert!(FlushRange::pages(0, FLUSH_CEILING_PAGES + 1, PageSize::SIZE_4K).exceeds_ceiling());
}

/// A policy's numbers take the place of those before, all their bits, and nothing else's.
#[test]
fn numbers_of_a_policy_replace_each_other() {
    let numbers = [0, 1, 9, 255, 256, 300, u16::MAX];
    for policy in [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST] {
        for (first, second) in numbers.into_iter().flat_map(|n| numbers.map(|m| (n, m))) {
            let once = policy.with_broadcast_from(second);
            let twice = policy
                .with_broadcast_from(first)
                .with_broadcast_from(second);
            assert_eq!(twice, once);
            assert_eq!(once.broadcasts_from(), second);
            assert_eq!(once.global_tags_from(), policy.global_tags_from());
            let both = once.with_global_tags_from(first);
            let numbers = (both.broadcasts_from(), both.global_tags_from());
            assert_eq!(numbers, (second, first));
            let again = both.with_global_tags_from(policy.global_tags_from());
            assert_eq!(again, once);
        }
    }
}

#[test]
fn policies_have_names() {
    for name in ["before", "published", "best"] {
        assert_eq!(Policy::from_name(name).map(Policy::name), Some(name));
    }
    for unknown in [
        "Best",
        "",
        "before+",
        "before+best",
        "concurrent",
        "before+Inline",
    ] {
        assert_eq!(Policy::from_name(unknown), None, "{unknown}");
    }
    assert_eq!(Policy::default(), Policy::BEST);
}

/// What stands behind a `+` is on, and nothing else changes.
#[test]
fn improvements_are_switched_on_by_name() {
    type Getter = fn(Policy) -> bool;
    let improvements: [(&str, Getter); 5] = [
        ("concurrent", Policy::is_concurrent),
        ("inline", Policy::is_inline),
        ("early-ack", Policy::acknowledges_early),
        ("prefetch", Policy::prefetches),
        ("defer", Policy::defers),
    ];
    for (word, _) in improvements {
        let policy = Policy::from_name(&format!("before+{word}")).unwrap();
        let on = improvements.map(|(_, is_on)| is_on(policy));
        assert_eq!(on, improvements.map(|(other, _)| other == word), "{word}");
        assert_eq!(policy.name(), "custom");
    }
    let all = Policy::from_name("before+concurrent+inline+early-ack").unwrap();
    let published = Policy::PUBLISHED.with_tags(Tags::None).with_lazy(false);
    assert_eq!(all.with_preemptible_waits(true), published);
}

/// Each number that the documentation promises has an engine.
#[test]
fn every_promised_number_of_cpus_is_supported() {
    fn words<const N: usize>() -> usize
    where
        Cpus<N>: Capacity,
    {
        <Cpus<N> as Capacity>::WORDS
    }
    macro_rules! up_to_64 {
        ($($number:literal)+) => {
            ([$(words::<$number>()),+], [$(words::<{ 64 * $number }>()),+])
        };
    }
    let (single, multiples) = up_to_64!(
            1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22
            23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44
            45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
    );
    assert_eq!(single, [1; 64]);
    assert!(multiples.into_iter().eq(1..=64));
}
