//! The order of things where files are mapped: a writer's right is gone everywhere before its page is stored, or forgotten. Another
//! thread syncs, or touches pages, each time that an operation lets go of the lock.

mod support;

use shootdown_kernel_tests::mm::file::counters;
use shootdown_kernel_tests::mm::{AreaKind, Destination, FaultError, MapRequest, MemoryFile};
use shootdown_kernel_tests::mm::{MemorySpace, PAGE_SIZE, Populate, Prot, SyncWhen};
use shootdown_kernel_tests::witness::{at_wait, intrude};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use support::watched::{Watched, locked, unlocked};
use support::*;

const PAGES: usize = 6;
const BYTES: usize = PAGES * PAGE_SIZE;

fn mapper() -> (Arc<MemoryFile>, Arc<MemorySpace>) {
    support::mapper(PAGES)
}

#[test]
fn a_sync_flushes_each_space_once_and_waits_for_it() {
    let _turn = Turn::new();
    let (file, first) = mapper();
    let second = mapped(PAGES, shown(&file, 0));
    let watched = Watched::new(&[&first, &second]);
    let sync = || sync(&file);
    fill(&first, PAGES);
    watched.costs(unlocked(1), sync);
    fill(&first, PAGES);
    (0..PAGES).for_each(|page| second.fault(at(page), READ).unwrap());
    watched.costs(unlocked(2), sync);
    watched.costs(unlocked(0), sync);
    put(&second, 4, 9);
    watched.costs(unlocked(1), || {
        second.sync(BASE, BYTES, SyncWhen::Now).unwrap()
    });
    assert_eq!(stored(&file, 4), 9);
}

/// Whoever takes a page that was written to out of the table, or its right to be written to.
#[test]
fn a_writer_is_waited_for_before_the_lock_is_released() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    let watched = Watched::new(&[&space]);
    let again = || {
        map(&space, PAGES, shown(&file, 0));
        fill(&space, PAGES);
    };
    again();
    watched.costs(locked(1), || protect(&space, 1, 1, Prot::READ));
    watched.costs(locked(1), || discard(&space, 2, 1));
    watched.costs(locked(1), || unmap(&space, 0, 1));
    watched.costs(locked(1), || map(&space, PAGES, shown(&file, 0)));
    again();
    watched.costs(locked(1), || move_to(&space, 3, 1, 600));
    let shrunk = watched.costs(locked(1), || remap(&space, 0, (2, 1), Destination::Stay));
    assert_eq!(shrunk, Ok(BASE));
    // What was only read is waited for without the lock, and what is given up.
    watched.costs(unlocked(1), || file.change().set_size(8).unwrap());
    resize(&file, PAGES);
    sync(&file);
    map(&space, PAGES, shown(&file, 0));
    (0..PAGES).for_each(|page| space.fault(at(page), READ).unwrap());
    watched.costs(unlocked(1), || file.change().set_size(8).unwrap());
    watched.costs(unlocked(1), || unmap(&space, 0, PAGES));
}

/// All spaces lose what is cut off before any CPU is waited for, and who finds it gone meanwhile waits as well.
#[test]
fn a_cut_is_one_flush_for_all_that_map_the_file() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    let other = MemorySpace::new().unwrap();
    let again = || {
        for space in [&space, &other] {
            map(space, PAGES, shown(&file, 0));
            fill(space, PAGES);
        }
    };
    again();
    let watched = Watched::new(&[&space, &other]);
    let cut = |size| file.change().set_size(size).unwrap();
    let (before, spaces) = (counters(), [space.clone(), other.clone()]);
    let are_gone = Rc::new(Cell::new(false));
    let answer = are_gone.clone();
    at_wait(move || {
        let has_lost = |space: &Arc<MemorySpace>| entry(space, 1).is_none();
        answer.set(spaces.iter().all(has_lost));
    });
    watched.costs(unlocked(2), || cut(8));
    assert!(are_gone.get());
    resize(&file, PAGES);
    again();
    let (late, waits) = (other.clone(), Rc::new(Cell::new(false)));
    let (waited, answer) = (Rc::new(Cell::new(false)), waits.clone());
    at_wait(move || {
        let seen = waited.clone();
        at_wait(move || seen.set(true));
        discard(&late, 1, 1);
        answer.set(waited.get());
    });
    watched.costs(unlocked(2), || cut(8));
    assert!(waits.get(), "a discard of what the cut has taken away");
    let after = counters();
    let flushes = after.cut_flushes - before.cut_flushes;
    assert_eq!((flushes, after.cut_spaces - before.cut_spaces), (2, 4));
    // Nothing is left to be taken away.
    watched.costs(unlocked(0), || cut(4));
}

/// What another thread has unmapped and waits for is cut off only when nobody has it.
#[test]
fn a_cut_waits_for_what_others_have_unmapped() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    space.fault(at(1), READ).unwrap();
    let watched = Watched::new(&[&space]);
    let waits = Rc::new(Cell::new(false));
    let (waited, answer) = (Rc::new(Cell::new(false)), waits.clone());
    at_wait(move || {
        let seen = waited.clone();
        at_wait(move || seen.set(true));
        resize(&file, 0);
        answer.set(waited.get());
    });
    discard(&space, 1, 1);
    assert!(waits.get(), "the page can be read");
    drop(watched);
}

type Operation = fn(&MemorySpace);

const OPERATIONS: [(&str, Operation); 8] = [
    ("unmap", |space| unmap(space, 1, 1)),
    ("map", |space| map(space, PAGES, AreaKind::Anonymous)),
    ("discard", |space| discard(space, 1, 1)),
    ("read-only", |space| protect(space, 1, 1, Prot::READ)),
    ("no access", |space| protect(space, 0, PAGES, Prot::NONE)),
    ("move", |space| move_to(space, 1, 1, 7)),
    ("move over", |space| move_to(space, 4, 1, 1)),
    ("shrink", |space| {
        remap(space, 0, (PAGES, 1), Destination::Stay).unwrap();
    }),
];

#[test]
fn a_sync_may_come_whenever_the_lock_is_free() {
    let _turn = Turn::new();
    for (name, operation) in OPERATIONS {
        let (file, space) = mapper();
        let watched = Watched::new(&[&space]);
        put(&space, 1, 7);
        let syncing = file.clone();
        let intruder = intrude(move || sync(&syncing));
        operation(&space);
        watched.watch.settle();
        drop(intruder);
        assert_eq!(stored(&file, 1), 7, "{name}");
    }
}

/// A sync finds that a space maps the file no more; a thread maps it again: the next sync finds the space.
#[test]
fn a_file_is_mapped_again_while_a_sync_forgets_the_space() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    let watched = Watched::new(&[&space]);
    put(&space, 0, 1);
    unmap(&space, 0, PAGES);
    let (again, other) = (file.clone(), space.clone());
    let intruder = intrude(move || map(&other, PAGES, shown(&again, 0)));
    sync(&file);
    drop(intruder);
    watched.watch.settle();
    put(&space, 0, 5);
    sync(&file);
    assert!(!may_write(&space, 0) && stored(&file, 0) == 5);
}

/// Nobody brings a page back that is being cut off.
#[test]
fn a_file_is_cut_while_others_touch_it() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    let watched = Watched::new(&[&space]);
    for kept in [3, 1, 0] {
        resize(&file, PAGES);
        fill(&space, PAGES);
        let other = space.clone();
        let intruder = intrude(move || {
            let refused = Err(FaultError::BeyondFile);
            (kept..PAGES).for_each(|page| assert_eq!(other.fault(at(page), READ), refused));
        });
        resize(&file, kept);
        drop(intruder);
        watched.watch.settle();
        assert!((kept..PAGES).all(|page| entry(&space, page).is_none()));
    }
}

/// A space that has only read pages is still one that may write to them.
#[test]
fn a_reader_that_becomes_a_writer_is_known() {
    let _turn = Turn::new();
    let (file, reader) = mapper();
    let writer = mapped(PAGES, shown(&file, 0));
    let watched = Watched::new(&[&reader]);
    reader.fault(at(1), READ).unwrap();
    put(&writer, 0, 1);
    sync(&file);
    put(&reader, 1, 5);
    watched.costs(unlocked(1), || sync(&file));
    assert!(!may_write(&reader, 1) && stored(&file, 1) == 5);
}

#[test]
fn pages_that_are_mapped_in_advance_are_clean() {
    let _turn = Turn::new();
    let (file, space) = (file_of(PAGES), MemorySpace::new().unwrap());
    let request = MapRequest {
        populate: Populate::Now,
        kind: shown(&file, 0),
        ..request(BASE, PAGES)
    };
    space.map(request).unwrap();
    assert!((0..PAGES).all(|page| entry(&space, page).is_some() && !may_write(&space, page)));
}
