//! The order of things where files are mapped: a writer's right is gone everywhere before its page is stored, or forgotten. Another
//! thread syncs, or touches pages, each time that an operation lets go of the lock.

mod support;

use shootdown_kernel_tests::mm::file::{Copy, PageRange};
use shootdown_kernel_tests::mm::{
    Advice, AreaKind, Destination, FaultError, FileArea, MapRequest, MemoryFile, MemorySpace,
    PAGE_SIZE, Placement, Populate, Prot, SyncWhen,
};
use shootdown_kernel_tests::witness::intrude;
use std::sync::Arc;
use support::watched::{Watched, locked, unlocked};
use support::{BASE, READ, Turn, WRITE, at, entry, map, may_write, write};

const PAGES: usize = 6;
const BYTES: usize = PAGES * PAGE_SIZE;

fn shown(file: &Arc<MemoryFile>) -> AreaKind {
    AreaKind::SharedFile(FileArea::new(file.clone(), 0, true))
}

/// A space that maps all of a new file.
fn mapper() -> (Arc<MemoryFile>, Arc<MemorySpace>) {
    let file = MemoryFile::new().unwrap();
    file.change().set_size(BYTES as u64).unwrap();
    let space = MemorySpace::new().unwrap();
    map(&space, PAGES, shown(&file));
    (file, space)
}

fn put(space: &MemorySpace, page: usize, value: u64) {
    if entry(space, page).is_none() {
        space.fault(at(page), WRITE).unwrap();
    }
    write(space, page, value);
}

fn stored(file: &MemoryFile, page: usize) -> u64 {
    let mut bytes = [0; 8];
    file.read(Copy::Stored, (page * PAGE_SIZE) as u64, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn touch_all(space: &MemorySpace) {
    (0..PAGES).for_each(|page| put(space, page, page as u64 + 1));
}

#[test]
fn a_sync_flushes_each_space_once_and_waits_for_it() {
    let _turn = Turn::new();
    let (file, first) = mapper();
    let second = MemorySpace::new().unwrap();
    map(&second, PAGES, shown(&file));
    let watched = Watched::new(&[&first, &second]);
    let sync = || file.sync(PageRange::WHOLE).unwrap();
    touch_all(&first);
    watched.costs(unlocked(1), sync);
    touch_all(&first);
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
        map(&space, PAGES, shown(&file));
        touch_all(&space);
    };
    again();
    watched.costs(locked(1), || {
        space.protect(at(1), PAGE_SIZE, Prot::READ).unwrap();
    });
    watched.costs(locked(1), || {
        space.advise(at(2), PAGE_SIZE, Advice::Discard).unwrap();
    });
    watched.costs(locked(1), || space.unmap(at(0), PAGE_SIZE).unwrap());
    watched.costs(locked(1), || map(&space, PAGES, shown(&file)));
    again();
    watched.costs(locked(1), || {
        let to = Destination::Fixed(at(600));
        space.remap(at(3), PAGE_SIZE, PAGE_SIZE, to).unwrap();
    });
    watched
        .costs(locked(1), || {
            space.remap(BASE, 2 * PAGE_SIZE, PAGE_SIZE, Destination::Stay)
        })
        .unwrap();
    watched.costs(locked(1), || file.change().set_size(8).unwrap());
    // What was only read is waited for without the lock.
    file.change().set_size(BYTES as u64).unwrap();
    file.sync(PageRange::WHOLE).unwrap();
    map(&space, PAGES, shown(&file));
    (0..PAGES).for_each(|page| space.fault(at(page), READ).unwrap());
    watched.costs(unlocked(1), || file.change().set_size(8).unwrap());
    watched.costs(unlocked(1), || space.unmap(BASE, BYTES).unwrap());
}

type Operation = fn(&MemorySpace);

const OPERATIONS: [(&str, Operation); 8] = [
    ("unmap", |space| space.unmap(at(1), PAGE_SIZE).unwrap()),
    ("map", |space| map(space, PAGES, AreaKind::Anonymous)),
    ("discard", |space| {
        space.advise(at(1), PAGE_SIZE, Advice::Discard).unwrap();
    }),
    ("read-only", |space| {
        space.protect(at(1), PAGE_SIZE, Prot::READ).unwrap();
    }),
    ("no access", |space| {
        space.protect(BASE, BYTES, Prot::NONE).unwrap();
    }),
    ("move", |space| {
        let to = Destination::Fixed(at(7));
        space.remap(at(1), PAGE_SIZE, PAGE_SIZE, to).unwrap();
    }),
    ("move over", |space| {
        let to = Destination::Fixed(at(1));
        space.remap(at(4), PAGE_SIZE, PAGE_SIZE, to).unwrap();
    }),
    ("shrink", |space| {
        space
            .remap(BASE, BYTES, PAGE_SIZE, Destination::Stay)
            .unwrap();
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
        let intruder = intrude(move || syncing.sync(PageRange::WHOLE).unwrap());
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
    space.unmap(BASE, BYTES).unwrap();
    let (again, other) = (file.clone(), space.clone());
    let intruder = intrude(move || map(&other, PAGES, shown(&again)));
    file.sync(PageRange::WHOLE).unwrap();
    drop(intruder);
    watched.watch.settle();
    put(&space, 0, 5);
    file.sync(PageRange::WHOLE).unwrap();
    assert!(!may_write(&space, 0) && stored(&file, 0) == 5);
}

/// Nobody brings a page back that is being cut off.
#[test]
fn a_file_is_cut_while_others_touch_it() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    let watched = Watched::new(&[&space]);
    for kept in [3, 1, 0] {
        file.change().set_size(BYTES as u64).unwrap();
        touch_all(&space);
        let other = space.clone();
        let intruder = intrude(move || {
            let refused = Err(FaultError::BeyondFile);
            (kept..PAGES).for_each(|page| assert_eq!(other.fault(at(page), READ), refused));
        });
        let change = file.change();
        change.set_size((kept * PAGE_SIZE) as u64).unwrap();
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
    let writer = MemorySpace::new().unwrap();
    map(&writer, PAGES, shown(&file));
    let watched = Watched::new(&[&reader]);
    reader.fault(at(1), READ).unwrap();
    put(&writer, 0, 1);
    file.sync(PageRange::WHOLE).unwrap();
    put(&reader, 1, 5);
    watched.costs(unlocked(1), || file.sync(PageRange::WHOLE).unwrap());
    assert!(!may_write(&reader, 1) && stored(&file, 1) == 5);
}

#[test]
fn pages_that_are_mapped_in_advance_are_clean() {
    let _turn = Turn::new();
    let file = MemoryFile::new().unwrap();
    file.change().set_size(BYTES as u64).unwrap();
    let space = MemorySpace::new().unwrap();
    let request = MapRequest {
        addr: BASE,
        len: BYTES,
        prot: Prot::READ_WRITE,
        placement: Placement::Fixed,
        populate: Populate::Now,
        kind: shown(&file),
    };
    space.map(request).unwrap();
    assert!((0..PAGES).all(|page| entry(&space, page).is_some() && !may_write(&space, page)));
}
