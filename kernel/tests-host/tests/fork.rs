//! Forked address spaces: frames, rights and flushes, without a processor.

mod support;

use shootdown_kernel_tests::mm::frames;
use shootdown_kernel_tests::mm::{AreaKind, FaultError, MapError, MapRequest};
use shootdown_kernel_tests::mm::{MemorySpace, Prot, SpaceUse};
use shootdown_kernel_tests::platform::flushes;
use support::*;

const PAGES: usize = 6;

fn contents(space: &MemorySpace) -> Vec<u64> {
    (0..PAGES).map(|page| read(space, page)).collect()
}

#[test]
fn both_sides_lose_the_right_to_write_with_one_flush() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    parent.activate(None);
    let before = flushes();
    let child = parent.fork().unwrap();
    assert_eq!(flushes() - before, 1);
    for page in 0..PAGES {
        assert!(!may_write(&parent, page) && !may_write(&child, page));
    }
    assert_eq!(contents(&child), contents(&parent));
    // Nothing is left to take away.
    let second = parent.fork().unwrap();
    assert_eq!(flushes() - before, 1);
    assert_eq!(contents(&second), contents(&parent));
    parent.deactivate();
}

#[test]
fn a_write_is_seen_by_its_writer_only() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    write(&child, 0, 100);
    write(&parent, 1, 200);
    assert_eq!(contents(&parent), [1, 200, 3, 4, 5, 6]);
    assert_eq!(contents(&child), [100, 2, 3, 4, 5, 6]);
    // The last owner of a page writes to it without a copy.
    let used = frames::free_count();
    write(&parent, 0, 300);
    write(&child, 1, 400);
    assert_eq!(frames::free_count(), used);
    assert_eq!(read(&child, 0), 100);
}

#[test]
fn a_copy_is_flushed_and_then_writable() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    parent.activate(None);
    let before = flushes();
    write(&parent, 2, 7);
    assert_eq!(flushes() - before, 1);
    drop(child);
    write(&parent, 3, 7);
    assert_eq!(flushes() - before, 1, "a right gained is not flushed");
    parent.deactivate();
}

#[test]
fn rights_that_come_back_do_not_unshare() {
    let _turn = Turn::new();
    for hidden in [Prot::NONE, Prot::READ] {
        let parent = written(PAGES);
        protect(&parent, 0, PAGES, hidden);
        let child = parent.fork().unwrap();
        protect(&parent, 0, PAGES, Prot::READ_WRITE);
        protect(&child, 0, PAGES, Prot::WRITE);
        for page in 0..PAGES {
            assert!(!may_write(&parent, page) && !may_write(&child, page));
            write(&parent, page, 9);
        }
        assert_eq!(contents(&child), [1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn what_one_discards_the_other_keeps() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let (first, second) = (parent.fork().unwrap(), parent.fork().unwrap());
    discard(&parent, 0, PAGES);
    assert_eq!(entry(&parent, 0), None);
    unmap(&first, 0, 3);
    assert_eq!(contents(&second), [1, 2, 3, 4, 5, 6]);
}

/// More shares than one frame notes.
#[test]
fn many_shares_are_given_up_in_one_flush() {
    const MANY: usize = 2500;
    let _turn = Turn::new();
    let parent = written(MANY);
    let child = parent.fork().unwrap();
    parent.activate(None);
    let before = flushes();
    unmap(&parent, 0, MANY);
    assert_eq!(flushes() - before, 1);
    assert_eq!(read(&child, MANY - 1), MANY as u64);
    parent.deactivate();
}

#[test]
fn shares_are_given_up_without_memory_too() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    parent.activate(None);
    let hoard = exhaust();
    let before = flushes();
    unmap(&parent, 0, PAGES);
    assert!(flushes() > before);
    give_back(hoard);
    assert_eq!(contents(&child), [1, 2, 3, 4, 5, 6]);
    parent.deactivate();
}

#[test]
fn a_fork_without_memory_leaves_nothing_behind() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    for available in 0..ROOTS + 4 {
        let mut hoard = exhaust();
        (0..available).for_each(|_| hoard.pop().into_iter().for_each(frames::free));
        let refused = parent.fork().err();
        // A root and three tables.
        let wanted = (available < ROOTS + 3).then_some(MapError::NoMemory);
        assert_eq!(refused, wanted, "with {available} frames");
        assert_eq!(frames::free_count(), available);
        give_back(hoard);
        (0..PAGES).for_each(|page| write(&parent, page, page as u64 + 1));
    }
    assert_eq!(contents(&parent), [1, 2, 3, 4, 5, 6]);
}

/// Its memory ends between two tables: the entries of the first have lost the right to write.
#[test]
fn a_fork_that_fails_flushes_what_it_has_changed() {
    const FAR: usize = 520;
    let _turn = Turn::new();
    let parent = mapped(FAR + 1, AreaKind::Anonymous);
    put(&parent, 0, 1);
    put(&parent, FAR, 1);
    parent.activate(None);
    let mut hoard = exhaust();
    // A root and three of the four tables.
    (0..ROOTS + 3).for_each(|_| hoard.pop().into_iter().for_each(frames::free));
    let before = flushes();
    assert_eq!(parent.fork().err(), Some(MapError::NoMemory));
    assert!(!may_write(&parent, 0) && may_write(&parent, FAR));
    assert_eq!(flushes() - before, 1);
    give_back(hoard);
    parent.deactivate();
}

#[test]
fn a_copy_without_memory_is_refused() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    let mut hoard = exhaust();
    assert_eq!(parent.fault(at(0), REFUSED), Err(FaultError::OutOfMemory));
    // The last frame is for a page that is not there; the page is there, and a copy needs one more.
    hoard.pop().into_iter().for_each(frames::free);
    assert_eq!(parent.fault(at(0), WRITE), Err(FaultError::OutOfMemory));
    give_back(hoard);
    write(&parent, 0, 5);
    assert_eq!(read(&child, 0), 1);
}

#[test]
fn shared_memory_is_found_by_whoever_comes_later() {
    let _turn = Turn::new();
    let parent = mapped(PAGES, shared());
    parent.fault(at(0), WRITE).unwrap();
    write(&parent, 0, 1);
    let child = parent.fork().unwrap();
    assert!(may_write(&parent, 0), "what stays shared stays writable");
    for page in 0..PAGES {
        child.fault(at(page), READ).unwrap();
        write(&child, page, 10 + page as u64);
        parent.fault(at(page), READ).unwrap();
        assert_eq!(read(&parent, page), 10 + page as u64);
    }
    // Neither a discard nor the end of a process takes the contents away.
    discard(&parent, 0, PAGES);
    drop(child);
    parent.fault(at(4), READ).unwrap();
    assert_eq!(read(&parent, 4), 14);
    let here = parent.shared_place(at(4));
    let there = parent.fork().unwrap().shared_place(at(4));
    assert!(here.is_some() && here == there);
    // A part that moves shows the same contents.
    move_to(&parent, 4, 1, 40);
    assert_eq!((read(&parent, 40), parent.shared_place(at(40))), (14, here));
}

/// A part that is moved behind one that it does not follow stays an area of its own.
#[test]
fn parts_of_shared_memory_in_another_order_stay_apart() {
    let _turn = Turn::new();
    let space = mapped(PAGES, shared());
    (0..PAGES).for_each(|page| {
        space.fault(at(page), WRITE).unwrap();
        write(&space, page, 10 + page as u64);
    });
    for (from, to) in [(4, 40), (2, 41)] {
        move_to(&space, from, 1, to);
    }
    discard(&space, 40, 2);
    for (page, contents) in [(40, 14), (41, 12)] {
        space.fault(at(page), READ).unwrap();
        assert_eq!(read(&space, page), contents);
    }
}

#[test]
fn parts_of_shared_memory_fit_together_again() {
    let _turn = Turn::new();
    let space = mapped(PAGES, shared());
    protect(&space, 2, 1, Prot::READ);
    assert_eq!(space.areas().unwrap().len(), 3);
    protect(&space, 2, 1, Prot::READ_WRITE);
    assert_eq!(space.areas().unwrap().len(), 1);
}

#[test]
fn a_dead_process_keeps_no_memory_on_an_idle_cpu() {
    let turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    let idle_cpu = child.clone();
    let (one, other) = (SpaceUse::new(child.clone()), SpaceUse::new(child));
    idle_cpu.activate(None);
    idle_cpu.rest();
    drop(one);
    assert_eq!(contents(&idle_cpu), [1, 2, 3, 4, 5, 6]);
    drop(other);
    drop(parent);
    assert_eq!(
        turn.frames - frames::free_count(),
        ROOTS,
        "the root is left"
    );
    idle_cpu.deactivate();
}

/// Whoever makes a page of shared memory, the frame had contents before.
#[test]
fn pages_of_shared_memory_begin_with_zeroes() {
    let _turn = Turn::new();
    drop(written(PAGES));
    let space = mapped(PAGES, shared());
    for page in 0..PAGES {
        // With a frame in hand, and without.
        let access = if page % 2 == 0 { READ } else { REFUSED };
        space.fault(at(page), access).unwrap();
    }
    assert_eq!(contents(&space), [0; PAGES]);
}

/// Each area has rules of its own, also where one call changes several.
#[test]
fn rights_for_private_and_shared_pages_at_once() {
    let _turn = Turn::new();
    let parent = written(2);
    let shared = MapRequest {
        kind: shared(),
        ..request(at(2), 2)
    };
    parent.map(shared).unwrap();
    (2..4).for_each(|page| parent.fault(at(page), WRITE).unwrap());
    let child = parent.fork().unwrap();
    for prot in [Prot::READ, Prot::READ_WRITE] {
        protect(&parent, 0, 4, prot);
    }
    assert!((0..2).all(|page| !may_write(&parent, page)));
    (0..4).for_each(|page| write(&parent, page, 70));
    let childs: Vec<u64> = (0..2).map(|page| read(&child, page)).collect();
    assert_eq!(childs, [1, 2]);
    child.fault(at(2), READ).unwrap();
    assert_eq!(read(&child, 2), 70);
}
