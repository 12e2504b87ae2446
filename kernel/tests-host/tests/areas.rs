//! The list of areas against a model that remembers every page by itself.

use proptest::prelude::*;
use shootdown_kernel_tests::mm::range::UserRange;
use shootdown_kernel_tests::mm::vma::{Area, Areas, MAX_AREAS};
use shootdown_kernel_tests::mm::{AreaKind, MapError, PAGE_SIZE, Prot};

const PAGES: usize = 48;
const BASE: usize = 0x10_0000;

fn at(page: usize) -> usize {
    BASE + page * PAGE_SIZE
}

fn range(start: usize, pages: usize) -> UserRange {
    UserRange::new(at(start), pages * PAGE_SIZE).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Replace(usize, usize, u8, bool),
    Remove(usize, usize),
    Protect(usize, usize, u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let place = (0..PAGES).prop_flat_map(|start| (Just(start), 1..=PAGES - start));
    let change =
        (place, 0..8u8, any::<bool>(), 0..3u8).prop_map(|((start, pages), prot, heap, kind)| {
            match kind {
                0 => Change::Replace(start, pages, prot, heap),
                1 => Change::Remove(start, pages),
                _ => Change::Protect(start, pages, prot),
            }
        });
    prop::collection::vec(change, 1..60)
}

fn prot(bits: u8) -> Prot {
    Prot::from_linux(usize::from(bits)).unwrap()
}

fn kind(heap: bool) -> AreaKind {
    match heap {
        true => AreaKind::Heap,
        false => AreaKind::Anonymous,
    }
}

/// What each page has; the model.
type Pages = [Option<(Prot, AreaKind)>; PAGES];

fn check(areas: &Areas, pages: &Pages) {
    for (index, expected) in pages.iter().enumerate() {
        let area = areas.find(at(index) + 17);
        let found = area.map(|area| (area.prot, area.kind.clone()));
        assert_eq!(found, *expected, "page {index}");
    }
    areas.check();
    let list: Vec<&Area> = areas.iter().collect();
    for pair in list.windows(2) {
        let (end, start) = (pair[0].range.end(), pair[1].range.start());
        assert!(end <= start, "sorted and disjoint");
        let touch = end == start;
        let same = (pair[0].prot, &pair[0].kind) == (pair[1].prot, &pair[1].kind);
        assert!(!(touch && same), "equal neighbours are merged");
    }
}

proptest! {
    #[test]
    fn areas_agree_with_the_model(changes in changes(), probe in 0..PAGES, len in 1..PAGES) {
        let mut areas = Areas::new();
        let mut pages: Pages = [const { None }; PAGES];
        for change in changes {
            match change {
                Change::Replace(start, count, bits, heap) => {
                    let area = Area { range: range(start, count), prot: prot(bits), kind: kind(heap) };
                    areas.replace(area).unwrap();
                    pages[start..start + count].fill(Some((prot(bits), kind(heap))));
                }
                Change::Remove(start, count) => {
                    areas.remove(range(start, count)).unwrap();
                    pages[start..start + count].fill(None);
                }
                Change::Protect(start, count, bits) => {
                    let whole = pages[start..start + count].iter().all(Option::is_some);
                    let outcome = areas.protect(range(start, count), prot(bits));
                    assert_eq!(outcome, if whole { Ok(()) } else { Err(MapError::NoMemory) });
                    if whole {
                        for page in pages[start..start + count].iter_mut().flatten() {
                            page.0 = prot(bits);
                        }
                    }
                }
            }
            check(&areas, &pages);
        }
        let len = len.min(PAGES - probe);
        let probed = range(probe, len);
        let mapped = |page: &Option<_>| page.is_some();
        assert_eq!(areas.is_free(probed), !pages[probe..probe + len].iter().any(mapped));
        assert_eq!(areas.covers(probed), pages[probe..probe + len].iter().all(mapped));
        for (floor, ceiling) in (0..PAGES).flat_map(|floor| (floor..=PAGES).map(move |c| (floor, c))) {
            let gap = areas.find_gap(len * PAGE_SIZE, at(floor), at(ceiling));
            let model = (floor..(ceiling + 1).saturating_sub(len)).rev().find(|start| {
                pages[*start..start + len].iter().all(Option::is_none)
            });
            assert_eq!(gap, model.map(|start| range(start, len)), "the highest gap");
        }
    }
}

#[test]
fn a_gap_reaches_to_the_neighbours() {
    let mut areas = Areas::new();
    for start in [2, 10] {
        let area = Area {
            range: range(start, 2),
            prot: Prot::READ,
            kind: AreaKind::Heap,
        };
        areas.replace(area).unwrap();
    }
    let (below, above) = areas.gap_around(range(5, 1));
    assert_eq!((below, above), (at(4), at(10)));
    assert_eq!(areas.gap_around(range(0, 1)), (0, at(2)));
    assert_eq!(areas.gap_around(range(20, 1)), (at(12), usize::MAX));
}

/// Areas of three pages with one page between two of them, as many as there may be.
fn full() -> Areas {
    let mut areas = Areas::new();
    for index in 0..MAX_AREAS {
        let area = Area {
            range: range(4 * index, 3),
            prot: Prot::READ,
            kind: AreaKind::Anonymous,
        };
        areas.replace(area).unwrap();
    }
    areas
}

#[test]
fn many_areas_are_a_balanced_tree() {
    let mut areas = full();
    areas.check();
    let (five, top) = (5 * PAGE_SIZE, at(4 * MAX_AREAS));
    assert_eq!(areas.find_gap(five, BASE, top), None);
    for index in (1..MAX_AREAS).step_by(2) {
        areas.remove(range(4 * index, 3)).unwrap();
        let gap = areas.find_gap(five, BASE, top);
        assert_eq!(gap, Some(range(4 * index - 1, 5)));
    }
    areas.check();
}

#[test]
fn at_the_limit_areas_can_be_trimmed_but_not_split() {
    let mut areas = full();
    let middle = range(401, 1);
    assert_eq!(areas.remove(middle), Err(MapError::NoMemory));
    assert!(areas.covers(range(400, 3)), "nothing is changed");
    areas.remove(range(0, 1)).unwrap();
    areas.remove(range(10, 1)).unwrap();
    areas.remove(range(14, 7)).unwrap();
    areas.check();
    let left: Vec<_> = areas.iter().take(6).map(|area| area.range).collect();
    let expected = [(1, 2), (4, 3), (8, 2), (12, 2), (21, 2), (24, 3)];
    assert_eq!(left, expected.map(|(start, pages)| range(start, pages)));
    areas.remove(middle).unwrap();
}

#[test]
fn ranges_refuse_what_is_not_user_memory() {
    for (start, bytes, error) in [
        (0x1001, 1, MapError::Invalid),
        (0x1000, 0, MapError::Invalid),
        (0x1000, usize::MAX, MapError::NoMemory),
        (usize::MAX & !0xfff, 0x2000, MapError::NoMemory),
        (0x7fff_ffff_f000, 1, MapError::NoMemory),
    ] {
        assert_eq!(UserRange::new(start, bytes), Err(error));
    }
    assert!(UserRange::new(0x7fff_ffff_e000, 4096).is_ok());
}
