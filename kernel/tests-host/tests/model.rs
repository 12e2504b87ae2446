//! Random operations on an address space against a model that knows every page, and a page walk of
//! this file's own: what the processor would see.

mod support;

use proptest::prelude::*;
use shootdown_kernel_tests::addr::PhysAddr;
use shootdown_kernel_tests::mm::{Advice, Destination, MapRequest, MemorySpace};
use shootdown_kernel_tests::mm::{PAGE_SIZE, Populate, Prot, frames};
use std::collections::BTreeMap;
use support::{ADDRESS, Turn, WRITE, entry_of, request};

/// Pages around the borders of a table of leaves, of a directory and of a directory of directories.
const BORDERS: [usize; 3] = [0x4020_0000, 0x8000_0000, 0x80_0000_0000];
const PAGES_A_BORDER: usize = 24;
const PAGES: usize = BORDERS.len() * PAGES_A_BORDER;

#[derive(Clone, Copy, Debug)]
enum Step {
    Map(usize, usize, Populate),
    Unmap(usize, usize),
    UnmapBetweenBorders(usize, usize),
    Protect(usize, usize, u8),
    Discard(usize, usize),
    Write(usize),
    Move(usize, usize, usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stretch = (0..PAGES).prop_flat_map(|page| (Just(page), 1..=rest_of_border(page)));
    let other = (0..PAGES).prop_flat_map(|page| (Just(page), 1..=rest_of_border(page)));
    let step =
        (stretch, other, 0..10u8, 0..8u8).prop_map(|((page, len), (to, to_len), kind, bits)| {
            match kind {
                0 => Step::Map(page, len, Populate::OnDemand),
                1 => Step::Map(page, len, Populate::Now),
                2 => Step::Unmap(page, len),
                3 => Step::UnmapBetweenBorders(page / PAGES_A_BORDER, to / PAGES_A_BORDER),
                4 => Step::Protect(page, len, bits),
                5 => Step::Discard(page, len),
                6 | 7 => Step::Write(page),
                _ => Step::Move(page, len, to, to_len),
            }
        });
    prop::collection::vec(step, 1..80)
}

fn rest_of_border(page: usize) -> usize {
    PAGES_A_BORDER - page % PAGES_A_BORDER
}

/// Address of the page with this number: half of each border's pages lie below it.
fn address(page: usize) -> usize {
    let offset = page % PAGES_A_BORDER * PAGE_SIZE;
    BORDERS[page / PAGES_A_BORDER] - PAGES_A_BORDER / 2 * PAGE_SIZE + offset
}

/// A mapped page: its rights, and its tag once it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Page {
    prot: Prot,
    tag: Option<u64>,
}

type Model = BTreeMap<usize, Page>;

fn word(frame: u64) -> u64 {
    // SAFETY: the first word of a frame of the simulated memory.
    unsafe { PhysAddr::new(frame).to_direct().cast::<u64>().read() }
}

fn compare(space: &MemorySpace, model: &Model) {
    for page in 0..PAGES {
        let found = entry_of(space, address(page));
        match (found, model.get(&page)) {
            (Some(entry), Some(&Page { prot, tag })) => {
                assert!(prot.any(), "page {page} may not be accessed");
                let rights = (entry & 2 != 0, entry >> 63 == 0);
                assert_eq!(rights, (prot.write(), prot.exec()), "page {page}");
                assert_eq!(word(entry & ADDRESS), tag.unwrap_or(0), "page {page}");
            }
            (Some(_), None) => panic!("page {page} is still mapped"),
            (None, Some(Page { prot, tag: Some(_) })) => {
                assert!(!prot.any(), "page {page} lost its contents");
            }
            (None, _) => {}
        }
    }
}

fn apply(space: &MemorySpace, model: &mut Model, step: Step, tag: u64) {
    match step {
        Step::Map(page, len, populate) => {
            let request = MapRequest {
                populate,
                ..request(address(page), len)
            };
            space.map(request).unwrap();
            let (prot, tag) = (Prot::READ_WRITE, None);
            model.extend((page..page + len).map(|page| (page, Page { prot, tag })));
        }
        Step::Unmap(page, len) => {
            space.unmap(address(page), len * PAGE_SIZE).unwrap();
            model.retain(|known, _| !(page..page + len).contains(known));
        }
        Step::UnmapBetweenBorders(one, other) => {
            let (low, high) = (one.min(other), one.max(other) + 1);
            let last = address(high * PAGES_A_BORDER - 1) + PAGE_SIZE;
            let first = address(low * PAGES_A_BORDER);
            space.unmap(first, last - first).unwrap();
            let gone = low * PAGES_A_BORDER..high * PAGES_A_BORDER;
            model.retain(|known, _| !gone.contains(known));
        }
        Step::Protect(page, len, bits) => {
            let prot = Prot::from_linux(usize::from(bits)).unwrap();
            let whole = (page..page + len).all(|page| model.contains_key(&page));
            let outcome = space.protect(address(page), len * PAGE_SIZE, prot);
            assert_eq!(outcome.is_ok(), whole);
            if whole {
                let pages = model.range_mut(page..page + len);
                pages.for_each(|(_, page)| page.prot = prot);
            }
        }
        Step::Discard(page, len) => {
            let whole = (page..page + len).all(|page| model.contains_key(&page));
            let outcome = space.advise(address(page), len * PAGE_SIZE, Advice::Discard);
            assert_eq!(outcome.is_ok(), whole);
            let pages = model.range_mut(page..page + len);
            pages.for_each(|(_, page)| page.tag = None);
        }
        Step::Write(page) => {
            let allowed = model.get(&page).is_some_and(|page| page.prot.write());
            assert_eq!(space.fault(address(page), WRITE).is_ok(), allowed);
            if allowed {
                let bytes = tag.to_le_bytes();
                space.write_initial(address(page), &bytes).unwrap();
                model.entry(page).and_modify(|page| page.tag = Some(tag));
            }
        }
        Step::Move(page, len, to, to_len) => {
            let destination = Destination::Fixed(address(to));
            let (old_len, new_len) = (len * PAGE_SIZE, to_len * PAGE_SIZE);
            let outcome = space.remap(address(page), old_len, new_len, destination);
            let first = model.get(&page).copied();
            let uniform = (page..page + len).all(|page| {
                first.is_some_and(|p| model.get(&page).is_some_and(|q| q.prot == p.prot))
            });
            let apart = page + len <= to || to + to_len <= page;
            assert_eq!(outcome.is_ok(), uniform && apart, "{outcome:?}");
            if let (Ok(_), Some(first)) = (outcome, first) {
                let moved: Vec<_> = (page..page + len).map(|page| model.remove(&page)).collect();
                for index in 0..to_len {
                    let page = moved.get(index).copied().flatten();
                    model.insert(to + index, page.unwrap_or(Page { tag: None, ..first }));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn processors_see_what_the_calls_promise(steps in steps()) {
        let turn = Turn::new();
        let space = MemorySpace::new().unwrap();
        let mut model = Model::new();
        for (index, step) in steps.into_iter().enumerate() {
            apply(&space, &mut model, step, index as u64 + 1);
            compare(&space, &model);
        }
        space.unmap(0, shootdown_kernel_tests::mm::USER_END).unwrap();
        let left = turn.frames - frames::free_count();
        assert_eq!(left, support::ROOTS, "only the root is left");
    }
}
