//! The order of flushes, waits, unlocks and releases, in each operation on an address space that another CPU has loaded. The rules are
//! the witness's; here is what each operation costs, and when it is waited for.

mod support;

use shootdown_kernel_tests::mm::layout::TOP_ENTRY_BYTES;
use shootdown_kernel_tests::mm::{Destination, MapRequest, MemorySpace};
use shootdown_kernel_tests::mm::{PAGE_SIZE, Populate, Prot, SpaceUse};
use std::sync::Arc;
use support::watched::{Watched, locked, unlocked};
use support::*;

const PAGES: usize = 6;

fn written() -> Arc<MemorySpace> {
    support::written(PAGES)
}

fn request(page: usize, pages: usize, populate: Populate) -> MapRequest {
    let request = support::request(at(page), pages);
    MapRequest {
        populate,
        ..request
    }
}

#[test]
fn mapping_flushes_what_it_replaces() {
    let _turn = Turn::new();
    let space = written();
    let watched = Watched::new(&[&space]);
    for populate in [Populate::OnDemand, Populate::Now] {
        let far = request(100, 2, populate);
        watched.costs(unlocked(0), || space.map(far).unwrap());
        let over = request(1, 2, populate);
        watched.costs(unlocked(1), || space.map(over).unwrap());
        (1..3).for_each(|page| space.fault(at(page), WRITE).unwrap());
        let over = request(100, 2, populate);
        (100..102).for_each(|page| space.fault(at(page), READ).unwrap());
        watched.costs(unlocked(1), || space.map(over).unwrap());
        unmap(&space, 100, 2);
    }
}

#[test]
fn unmapping_is_waited_for_without_the_lock() {
    let _turn = Turn::new();
    let space = written();
    let watched = Watched::new(&[&space, &space]);
    watched.costs(unlocked(2), || unmap(&space, 4, 2));
    watched.costs(unlocked(2), || unmap(&space, 1, 1));
    // With tables.
    watched.costs(unlocked(2), || unmap(&space, 0, PAGES));
    watched.costs(unlocked(0), || unmap(&space, 0, PAGES));
}

#[test]
fn a_discard_is_waited_for_without_the_lock() {
    let _turn = Turn::new();
    let space = written();
    let watched = Watched::new(&[&space]);
    let discard = || discard(&space, 0, PAGES);
    watched.costs(unlocked(1), discard);
    watched.costs(unlocked(0), discard);
    fill(&space, PAGES);
    watched.costs(unlocked(1), discard);
}

#[test]
fn a_heap_that_shrinks_is_flushed() {
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    let watched = Watched::new(&[&space]);
    space.set_heap_start(BASE);
    watched.costs(unlocked(0), || space.brk(at(PAGES)));
    fill(&space, PAGES);
    watched.costs(unlocked(1), || space.brk(at(2)));
    watched.costs(unlocked(0), || space.brk(at(1) + 8));
    watched.costs(unlocked(1), || space.brk(BASE));
}

#[test]
fn a_mapping_shrinks_grows_and_moves() {
    let _turn = Turn::new();
    let space = written();
    let watched = Watched::new(&[&space]);
    let costs =
        |cost, page, sizes, to| watched.costs(cost, || remap(&space, page, sizes, to).unwrap());
    costs(unlocked(1), 0, (PAGES, 4), Destination::Stay);
    costs(unlocked(0), 0, (4, PAGES), Destination::Stay);
    // To a lower table, to a higher one, and back over what is there.
    let low = 512 * 3;
    costs(locked(1), 0, (4, 4), Destination::Fixed(at(low)));
    costs(locked(1), low, (4, 2), Destination::Fixed(at(9 * 512)));
    space.map(request(0, PAGES, Populate::Now)).unwrap();
    costs(locked(1), 9 * 512, (2, 3), Destination::Fixed(at(1)));
    assert_eq!((read(&space, 1), read(&space, 2)), (1, 2));
    costs(
        locked(1),
        1,
        (3, 3),
        Destination::Fixed(BASE - 600 * PAGE_SIZE),
    );
    let part = remap(&space, 0, (1, PAGES), Destination::MayMove);
    assert!(part.is_ok() && part != Ok(BASE));
    watched.watch.settle();
}

/// Whoever unmaps pages where they are flushes that address, and frees them: by then nobody has them where they were.
#[test]
fn a_move_is_waited_for_under_the_lock() {
    const REGION: usize = TOP_ENTRY_BYTES / PAGE_SIZE;
    let _turn = Turn::new();
    let space = written();
    let watched = Watched::new(&[&space]);
    let edge = REGION - BASE / PAGE_SIZE;
    let places = [
        100,
        200,
        edge + 5,
        edge - 2,
        edge + 512,
        edge - 1,
        edge - 600,
    ];
    unmap(&space, 0, PAGES);
    for is_tracked in [false, true] {
        if is_tracked {
            space.track();
        }
        for (from, to) in places.into_iter().zip(places.into_iter().skip(1)) {
            space.map(request(from, 3, Populate::Now)).unwrap();
            let new = Destination::Fixed(at(to));
            watched.costs(locked(1), || remap(&space, from, (3, 3), new).unwrap());
            unmap(&space, to, 3);
        }
    }
}

/// Every change of rights, of pages that are there: a flush where one is lost, and only there.
#[test]
fn each_right_that_is_lost_is_flushed() {
    let _turn = Turn::new();
    let space = written();
    let watched = Watched::new(&[&space]);
    let rights = || (0..8).filter_map(Prot::from_linux);
    for (before, after) in rights().flat_map(|before| rights().map(move |after| (before, after))) {
        protect(&space, 0, PAGES, before);
        let cost = unlocked(usize::from(!before.within(after)));
        watched.costs(cost, || protect(&space, 0, PAGES, after));
    }
    // One page in the middle.
    protect(&space, 0, PAGES, Prot::READ_WRITE);
    let one = || protect(&space, 3, 1, Prot::READ);
    watched.costs(unlocked(1), one);
    assert!(may_write(&space, 2) && !may_write(&space, 3));
}

#[test]
fn a_fork_waits_before_it_unlocks() {
    let _turn = Turn::new();
    let parent = written();
    let watched = Watched::new(&[&parent, &parent]);
    let child = watched.costs(locked(2), || parent.fork().unwrap());
    // Nothing is left to take away.
    let second = watched.costs(locked(0), || parent.fork().unwrap());
    watched.costs(locked(2), || parent.fault(at(2), REFUSED).unwrap());
    let third = watched.costs(locked(2), || parent.fork().unwrap());
    for child in [child, second, third] {
        assert_eq!(read(&child, 2), 3);
    }
}

#[test]
fn a_copy_on_write_waits_before_it_unlocks() {
    let _turn = Turn::new();
    let parent = written();
    let child = parent.fork().unwrap();
    let mut watched = Watched::new(&[&parent, &child]);
    for page in 0..PAGES {
        // Two writers, one after the other: the second has the original for itself.
        let (first, second) = if page % 2 == 0 {
            (&parent, &child)
        } else {
            (&child, &parent)
        };
        watched.costs(locked(1), || write(first, page, 100));
        watched.costs(locked(0), || write(second, page, 200));
        assert_eq!((read(first, page), read(second, page)), (100, 200));
    }
    // Both have more than one CPU's attention.
    watched.load(1, Some(&parent));
    let other = watched.costs(locked(2), || parent.fork().unwrap());
    watched.costs(locked(2), || write(&parent, 0, 7));
    watched.costs(locked(0), || write(&other, 0, 8));
}

#[test]
fn what_processes_share_is_given_up_one_after_the_other() {
    let _turn = Turn::new();
    let parent = written();
    let (first, second) = (parent.fork().unwrap(), parent.fork().unwrap());
    let watched = Watched::new(&[&parent, &first]);
    watched.costs(unlocked(1), || unmap(&parent, 0, 2));
    watched.costs(unlocked(1), || discard(&first, 0, 3));
    watched.costs(locked(1), || move_to(&parent, 2, 1, 4));
    assert_eq!((0..3).map(|page| read(&second, page)).sum::<u64>(), 6);
    drop(second);
    watched.costs(unlocked(1), || unmap(&first, 0, PAGES));
}

#[test]
fn a_process_ends_while_a_cpu_is_lazy_in_it() {
    let _turn = Turn::new();
    let parent = written();
    let child = parent.fork().unwrap();
    let watched = Watched::new(&[&child]);
    watched.rest(0);
    let last = SpaceUse::new(child.clone());
    drop(child);
    watched.costs(unlocked(1), || drop(last));
    assert_eq!(read(&parent, 5), 6);
}

/// Without memory to note a share on, each page is flushed by itself.
#[test]
fn shares_without_memory_are_flushed_before_they_are_released() {
    let _turn = Turn::new();
    let parent = written();
    let child = parent.fork().unwrap();
    let watched = Watched::new(&[&parent]);
    let hoard = exhaust();
    unmap(&parent, 1, 2);
    watched.watch.settle();
    assert!(watched.watch.seen().taken_locked > 0);
    give_back(hoard);
    assert_eq!(read(&child, 1), 2);
}

#[test]
fn memory_that_stays_shared_is_flushed_as_other_memory() {
    let _turn = Turn::new();
    let parent = mapped(PAGES, shared());
    fill(&parent, PAGES);
    let child = parent.fork().unwrap();
    (0..PAGES).for_each(|page| child.fault(at(page), READ).unwrap());
    let watched = Watched::new(&[&parent, &child]);
    watched.costs(unlocked(0), || drop(parent.fork().unwrap()));
    watched.costs(unlocked(1), || protect(&parent, 0, PAGES, Prot::READ));
    watched.costs(unlocked(1), || discard(&child, 0, PAGES));
    watched.costs(unlocked(1), || unmap(&parent, 0, PAGES));
    child.fault(at(5), READ).unwrap();
    assert_eq!(read(&child, 5), 6);
}
