//! Files in memory and their mappings: who may write, what a sync stores, and what it costs.

mod support;

use shootdown_kernel_tests::mm::file::{Copy, MAX_BYTES, PageRange};
use shootdown_kernel_tests::mm::frames;
use shootdown_kernel_tests::mm::{
    AreaKind, Destination, FaultError, FileArea, MapError, MapRequest,
};
use shootdown_kernel_tests::mm::{MemoryFile, MemorySpace, PAGE_SIZE, Populate, Prot, SyncWhen};
use shootdown_kernel_tests::platform::flushes;
use std::sync::Arc;
use support::*;

const PAGES: usize = 6;
const BYTES: usize = PAGES * PAGE_SIZE;

fn mapper() -> (Arc<MemoryFile>, Arc<MemorySpace>) {
    support::mapper(PAGES)
}

fn all_stored(file: &MemoryFile) -> Vec<u64> {
    let pages = 0..PAGES;
    pages.map(|page| stored(file, page)).collect()
}

/// Maps pages of a file from one on, to be read: whether it was opened for writing, too.
fn map_to_read(
    space: &MemorySpace,
    addr: usize,
    pages: usize,
    (file, start, writable): (&Arc<MemoryFile>, usize, bool),
) {
    let shown = FileArea::new(file.clone(), start * PAGE_SIZE, writable);
    let request = MapRequest {
        prot: Prot::READ,
        kind: AreaKind::SharedFile(shown),
        ..request(addr, pages)
    };
    space.map(request).unwrap();
}

#[test]
fn a_clean_page_is_read_only_until_the_first_write() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    space.fault(at(0), READ).unwrap();
    assert!(entry(&space, 0).is_some() && !may_write(&space, 0));
    write(&space, 0, 7);
    assert!(may_write(&space, 0));
    assert_eq!(file_word(&file, Copy::InMemory, 0), 7);
    assert_eq!(stored(&file, 0), 0);
    // Dirty already: who only reads need not fault again to write.
    let other = mapped(PAGES, shown(&file, 0));
    other.fault(at(0), READ).unwrap();
    assert!(may_write(&other, 0));
}

#[test]
fn a_sync_of_many_pages_is_one_flush_a_space() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    (0..PAGES).for_each(|page| put(&space, page, page as u64 + 1));
    space.activate(None);
    let before = flushes();
    sync(&file);
    assert_eq!(flushes() - before, 1);
    assert_eq!(all_stored(&file), [1, 2, 3, 4, 5, 6]);
    assert!((0..PAGES).all(|page| !may_write(&space, page)));
    sync(&file);
    assert_eq!(flushes() - before, 1, "nothing was written");
    write(&space, 3, 40);
    assert_eq!(flushes() - before, 1, "a right gained is not flushed");
    sync(&file);
    assert_eq!(flushes() - before, 2);
    assert_eq!(all_stored(&file), [1, 2, 3, 40, 5, 6]);
    space.deactivate();
}

#[test]
fn every_space_loses_the_right_to_write() {
    let _turn = Turn::new();
    let (file, first) = mapper();
    let second = mapped(PAGES - 2, shown(&file, 2));
    put(&first, 2, 5);
    put(&second, 0, 6);
    let child = second.fork().unwrap();
    put(&child, 0, 7);
    assert_eq!(read(&first, 2), 7, "one page");
    sync(&file);
    assert!(!may_write(&first, 2) && !may_write(&second, 0) && !may_write(&child, 0));
    assert_eq!(stored(&file, 2), 7);
    put(&child, 1, 8);
    sync(&file);
    assert!(!may_write(&child, 1));
    assert_eq!(stored(&file, 3), 8);
}

#[test]
fn a_sync_of_a_range_leaves_the_rest_dirty() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    (0..PAGES).for_each(|page| put(&space, page, 1));
    space.sync(at(1), 2 * PAGE_SIZE, SyncWhen::Now).unwrap();
    assert_eq!(all_stored(&file), [0, 1, 1, 0, 0, 0]);
    assert!(may_write(&space, 0) && !may_write(&space, 1) && may_write(&space, 3));
    space.sync(at(0), BYTES, SyncWhen::Later).unwrap();
    assert_eq!(all_stored(&file), [0, 1, 1, 0, 0, 0]);
    let hole = space.sync(at(0), BYTES + PAGE_SIZE, SyncWhen::Now);
    assert_eq!(hole, Err(MapError::NoMemory));
    assert_eq!(all_stored(&file), [1; PAGES], "the mapped part is stored");
    let unaligned = space.sync(at(0) + 1, PAGE_SIZE, SyncWhen::Now);
    assert_eq!(unaligned, Err(MapError::Invalid));
}

#[test]
fn what_was_written_outlives_the_mapping() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    put(&space, 0, 1);
    put(&space, 1, 2);
    put(&space, 2, 3);
    space.activate(None);
    let before = flushes();
    unmap(&space, 0, 1);
    discard(&space, 1, 1);
    protect(&space, 2, 1, Prot::READ);
    assert_eq!(flushes() - before, 3);
    sync(&file);
    assert_eq!(flushes() - before, 3, "no entry was left to weaken");
    assert_eq!(all_stored(&file)[..3], [1, 2, 3]);
    space.deactivate();
    put(&space, 3, 4);
    drop(space);
    sync(&file);
    assert_eq!(all_stored(&file)[..4], [1, 2, 3, 4]);
}

#[test]
fn rights_that_come_back_do_not_make_clean_pages_writable() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    for hidden in [Prot::NONE, Prot::READ] {
        put(&space, 0, 1);
        space.fault(at(1), READ).unwrap();
        sync(&file);
        protect(&space, 0, PAGES, hidden);
        protect(&space, 0, PAGES, Prot::READ_WRITE);
        assert!(!may_write(&space, 0) && !may_write(&space, 1), "{hidden}");
        put(&space, 0, 2);
        sync(&file);
        assert_eq!(stored(&file, 0), 2);
    }
}

/// By which those who wait on a word of it find one another.
#[test]
fn a_place_in_a_file_is_the_same_in_every_process() {
    let _turn = Turn::new();
    let (file, one) = mapper();
    let other = MemorySpace::new().unwrap();
    map(&other, 2, shown(&file, 3));
    let places = [one.shared_place(at(4)), other.shared_place(at(1))];
    assert!(places[0].is_some() && places[0] == places[1]);
    assert_ne!(other.shared_place(at(0)), places[1]);
    let reader = MemorySpace::new().unwrap();
    map_to_read(&reader, BASE, 1, (&file, 4, false));
    assert_eq!(reader.shared_place(at(0)), places[0], "who may only read");
    let (stranger, _) = mapper();
    map(&other, 2, shown(&stranger, 3));
    assert_ne!(other.shared_place(at(1)), places[1]);
}

#[test]
fn a_moved_mapping_is_still_watched() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    put(&space, 4, 1);
    // The last two pages, one page up and one longer.
    remap(&space, 4, (2, 3), Destination::Fixed(at(7))).unwrap();
    assert!(may_write(&space, 7));
    sync(&file);
    assert!(!may_write(&space, 7));
    put(&space, 8, 2);
    sync(&file);
    assert_eq!(all_stored(&file), [0, 0, 0, 0, 1, 2]);
    assert_eq!(space.fault(at(9), READ), Err(FaultError::BeyondFile));
}

#[test]
fn what_is_cut_off_disappears_everywhere() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    let other = mapped(PAGES, shown(&file, 0));
    for page in 0..PAGES {
        put(&space, page, 9);
        put(&other, page, 9);
    }
    sync(&file);
    let held = frames::free_count();
    space.activate(None);
    let before = flushes();
    file.change().set_size(PAGE_SIZE as u64 + 8).unwrap();
    assert_eq!(flushes() - before, 1);
    space.deactivate();
    assert_eq!(frames::free_count() - held, 2 * (PAGES - 2), "both copies");
    for space in [&space, &other] {
        assert!(entry(space, 1).is_some() && entry(space, 2).is_none());
        assert_eq!(space.fault(at(2), WRITE), Err(FaultError::BeyondFile));
        assert_eq!(space.fault(at(1), READ), Ok(()));
    }
    resize(&file, PAGES);
    space.fault(at(2), READ).unwrap();
    assert_eq!((read(&space, 1), read(&space, 2)), (9, 0));
    assert_eq!(all_stored(&file), [9, 9, 0, 0, 0, 0]);
}

/// A file whose pages hold 1, 2, ..., and a space that maps all of it privately.
fn private_mapper() -> (Arc<MemoryFile>, Arc<MemorySpace>) {
    let (file, writer) = mapper();
    fill(&writer, PAGES);
    let shown = FileArea::new(file.clone(), 0, false);
    (file, mapped(PAGES, AreaKind::PrivateFile(shown)))
}

#[test]
fn a_private_mapping_shows_the_file_until_it_writes() {
    let _turn = Turn::new();
    let (file, space) = private_mapper();
    let before = frames::free_count();
    for page in 0..2 {
        space.fault(at(page), READ).unwrap();
        assert!(!may_write(&space, page));
    }
    assert_eq!(before - frames::free_count(), 3, "tables only");
    let change = file.change();
    change.write(0, &10u64.to_le_bytes()).unwrap();
    drop(change);
    assert_eq!(read(&space, 0), 10);
    write(&space, 0, 20);
    put(&space, 2, 30);
    let words = |space: &MemorySpace| [read(space, 0), read(space, 1), read(space, 2)];
    assert_eq!(words(&space), [20, 2, 30]);
    assert_eq!(file_word(&file, Copy::InMemory, 0), 10);
    assert_eq!(file_word(&file, Copy::InMemory, 2), 3);
    let child = space.fork().unwrap();
    put(&child, 1, 40);
    write(&space, 0, 21);
    assert_eq!(words(&child), [20, 40, 30]);
    assert_eq!(words(&space), [21, 2, 30]);
    discard(&space, 0, PAGES);
    (0..3).for_each(|page| space.fault(at(page), READ).unwrap());
    assert_eq!(words(&space), [10, 2, 3]);
    protect(&space, 0, PAGES, Prot::READ);
    protect(&space, 0, PAGES, Prot::READ_WRITE);
    assert!(!may_write(&space, 1), "the file's page");
    sync(&file);
    assert_eq!(stored(&file, 1), 2);
}

#[test]
fn what_is_cut_off_disappears_from_private_mappings() {
    let _turn = Turn::new();
    let (file, space) = private_mapper();
    let child = space.fork().unwrap();
    for space in [&space, &child] {
        put(space, 1, 11);
        put(space, 2, 12);
        space.fault(at(3), READ).unwrap();
        space.activate(None);
        space.deactivate();
    }
    // A sync does not forget who maps the file privately.
    sync(&file);
    resize(&file, 2);
    for space in [&space, &child] {
        assert_eq!(read(space, 1), 11);
        for (page, access) in [(2, READ), (3, WRITE), (5, READ)] {
            assert!(entry(space, page).is_none(), "page {page}");
            let refused = space.fault(at(page), access);
            assert_eq!(refused, Err(FaultError::BeyondFile));
        }
    }
    resize(&file, PAGES);
    space.fault(at(2), READ).unwrap();
    assert_eq!(read(&space, 2), 0);
}

#[test]
fn a_private_copy_may_be_made_of_a_page_that_others_write_to() {
    let _turn = Turn::new();
    let (file, writer) = mapper();
    put(&writer, 0, 1);
    let shown = FileArea::new(file, 0, true);
    let private = MapRequest {
        kind: AreaKind::PrivateFile(shown),
        ..request(at(PAGES), PAGES)
    };
    writer.map(private).unwrap();
    put(&writer, PAGES, 2);
    write(&writer, 0, 3);
    assert_eq!((read(&writer, 0), read(&writer, PAGES)), (3, 2));
}

#[test]
fn bytes_behind_the_end_are_zero_when_the_file_grows() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    file.change().set_size(12).unwrap();
    file.change().write(0, &[1; 16]).unwrap();
    sync(&file);
    file.change().set_size(4).unwrap();
    file.change().set_size(16).unwrap();
    let wanted = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for copy in [Copy::InMemory, Copy::Stored] {
        let mut bytes = [7; 32];
        assert_eq!(file.read(copy, 0, &mut bytes), 16, "the end");
        assert_eq!(bytes[..16], wanted, "{copy:?}");
    }
    space.fault(at(0), READ).unwrap();
    assert_eq!(read(&space, 0), 0x0101_0101);
}

/// Mappings see them go at once.
#[test]
fn bytes_that_are_cut_off_inside_a_page_are_zero_in_its_mappings() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    put(&space, 1, u64::MAX);
    file.change().set_size(PAGE_SIZE as u64 + 4).unwrap();
    assert_eq!(read(&space, 1), 0xffff_ffff);
}

/// Those that a program has written through its mapping, where the last page has no bytes of the file.
#[test]
fn bytes_that_were_mapped_behind_the_end_are_zero_when_the_file_grows() {
    let _turn = Turn::new();
    for is_written in [false, true] {
        let (file, space) = mapper();
        file.change().set_size(4).unwrap();
        put(&space, 0, u64::MAX);
        match is_written {
            false => resize(&file, 1),
            true => assert_eq!(file.change().write(8, &[1]), Ok(1)),
        }
        assert_eq!(read(&space, 0), 0xffff_ffff);
        let mut bytes = [7; 8];
        assert_eq!(file.read(Copy::InMemory, 0, &mut bytes), 8);
        assert_eq!(u64::from_le_bytes(bytes), 0xffff_ffff);
    }
}

#[test]
fn writes_by_call_are_seen_through_mappings_and_stored() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    space.fault(at(1), READ).unwrap();
    let bytes = vec![3; PAGE_SIZE];
    let written = file.change().write(PAGE_SIZE as u64 / 2, &bytes);
    assert_eq!(written, Ok(PAGE_SIZE));
    assert_eq!(read(&space, 1), 0x0303_0303_0303_0303);
    sync(&file);
    assert_eq!(stored(&file, 1), 0x0303_0303_0303_0303);
    let change = file.change();
    assert_eq!(change.write(MAX_BYTES, &[1]), Err(MapError::TooBig));
    assert_eq!(change.set_size(MAX_BYTES + 1), Err(MapError::TooBig));
}

#[test]
fn more_dirty_pages_than_the_log_holds_are_all_found() {
    const MANY: usize = 1500;
    let _turn = Turn::new();
    let file = file_of(MANY);
    let change = file.change();
    let mark = |page: usize, value: u8| {
        change.write((page * PAGE_SIZE) as u64, &[value]).unwrap();
    };
    (0..MANY).for_each(|page| mark(page, 1));
    // A part of them first, which leaves the log incomplete.
    let part = PageRange { first: 3, end: 700 };
    file.sync(part).unwrap();
    assert_eq!(stored(&file, 2), 0);
    (3..700).for_each(|page| assert_eq!(stored(&file, page), 1));
    // As does another, up to the end and beyond.
    let tail = PageRange::of_bytes(1400 * PAGE_SIZE, usize::MAX);
    file.sync(tail).unwrap();
    assert_eq!((stored(&file, 1399), stored(&file, 1400)), (0, 1));
    mark(10, 2);
    sync(&file);
    for page in 0..MANY {
        let wanted = if page == 10 { 2 } else { 1 };
        assert_eq!(stored(&file, page), wanted, "page {page}");
    }
    // And a complete log again.
    mark(1400, 3);
    sync(&file);
    assert_eq!(stored(&file, 1400), 3);
}

#[test]
fn files_leave_memory_for_others() {
    let _turn = Turn::new();
    let most = frames::capacity() / 2;
    let file = file_of(most + 2);
    let space = mapped(most + 2, shown(&file, 0));
    (0..most).for_each(|page| space.fault(at(page), WRITE).unwrap());
    assert_eq!(space.fault(at(most), WRITE), Err(FaultError::NoFileSpace));
    let beyond = file.change().write((most * PAGE_SIZE) as u64, &[1]);
    assert_eq!(beyond, Err(MapError::NoSpace));
    // No room for the stored copy: the pages stay dirty until there is.
    assert_eq!(file.sync(PageRange::WHOLE), Err(MapError::NoSpace));
    resize(&file, 1);
    write(&space, 0, 5);
    assert_eq!(file.sync(PageRange::WHOLE), Ok(()));
    assert_eq!(stored(&file, 0), 5);
}

/// Writes that find no frame take nothing from what files may have.
#[test]
fn a_write_without_memory_costs_files_nothing() {
    let _turn = Turn::new();
    let most = frames::capacity() / 2;
    let file = file_of(2);
    file.change().write(0, &[1]).unwrap();
    let hoard = exhaust();
    for _ in 0..most {
        let second = file.change().write(PAGE_SIZE as u64, &[1]);
        assert_eq!(second, Err(MapError::NoMemory));
    }
    give_back(hoard);
    assert_eq!(file.change().write(PAGE_SIZE as u64, &[1]), Ok(1));
}

/// The pages of a file that came with the kernel, each of one byte; the last one is not whole.
fn archived() -> Arc<MemoryFile> {
    let bytes = (0..BYTES - 100).map(|at| (at / PAGE_SIZE) as u8 + 1);
    MemoryFile::new("archived", bytes.collect::<Vec<_>>().leak()).unwrap()
}

fn private(file: &Arc<MemoryFile>) -> AreaKind {
    AreaKind::PrivateFile(FileArea::new(file.clone(), 0, false))
}

fn first_byte(space: &MemorySpace, page: usize) -> u8 {
    if entry(space, page).is_none() {
        space.fault(at(page), READ).unwrap();
    }
    bytes(space, page)[0]
}

#[test]
fn clean_pages_are_given_up_and_come_back() {
    let _turn = Turn::new();
    let file = archived();
    let space = mapped(PAGES, shown(&file, 0));
    let other = MemorySpace::new().unwrap();
    other
        .map(MapRequest {
            kind: private(&file),
            ..request(BASE, PAGES)
        })
        .unwrap();
    for page in 0..PAGES {
        assert_eq!(first_byte(&space, page), page as u8 + 1);
        assert_eq!(first_byte(&other, page), page as u8 + 1);
    }
    // One that is dirty, one that is stored, and a private copy.
    write(&space, 1, 77);
    write(&space, 2, 78);
    file.sync(PageRange { first: 2, end: 3 }).unwrap();
    write(&other, 3, 79);
    space.activate(None);
    let before = flushes();
    assert_eq!(file.evict(), Ok(PAGES - 1), "all but the dirty one");
    assert_eq!(flushes(), before + 1, "however many pages");
    space.deactivate();
    for page in [0, 2, 3, 4, 5] {
        assert_eq!(entry(&space, page), None, "{page}");
        assert_eq!(entry(&other, page).is_some(), page == 3, "{page}");
    }
    assert_eq!(read(&other, 3), 79, "a copy is not the file's");
    assert_eq!(read(&space, 1), 77);
    assert_eq!(first_byte(&space, 2), 78, "as it was stored");
    for page in [0, 3, 4, 5] {
        assert_eq!(first_byte(&space, page), page as u8 + 1);
    }
    assert_eq!(bytes(&space, PAGES - 1)[PAGE_SIZE - 100..], [0; 100]);
}

#[test]
fn a_page_that_a_sync_has_not_stored_yet_is_kept() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    put(&space, 0, 7);
    // A sync that finds no memory leaves the page dirty; meanwhile it was clean.
    let hoard = exhaust();
    assert!(file.sync(PageRange::WHOLE).is_err());
    assert_eq!(file.evict(), Ok(0));
    give_back(hoard);
    assert_eq!(read(&space, 0), 7);
    assert_eq!(file_word(&file, Copy::InMemory, 0), 7);
}

#[test]
fn files_give_pages_up_for_faults() {
    let _turn = Turn::new();
    let file = archived();
    let reader = mapped(PAGES, shown(&file, 0));
    (0..PAGES).for_each(|page| reader.fault(at(page), READ).unwrap());
    let space = written(1);
    let request = MapRequest {
        kind: AreaKind::Anonymous,
        ..request(at(1), 3)
    };
    space.map(request).unwrap();
    let hoard = exhaust();
    for page in 1..4 {
        space.fault(at(page), WRITE).expect("a page of the file");
    }
    give_back(hoard);
    assert_eq!(first_byte(&reader, 0), 1);
}

#[test]
fn a_file_that_was_cut_has_nothing_of_its_origin_behind() {
    let _turn = Turn::new();
    let file = archived();
    file.change().set_size(PAGE_SIZE as u64 + 10).unwrap();
    file.change().set_size(BYTES as u64).unwrap();
    let space = mapped(PAGES, shown(&file, 0));
    assert_eq!(first_byte(&space, 0), 1);
    assert_eq!(first_byte(&space, 1), 2);
    assert_eq!(bytes(&space, 1)[9..12], [2, 0, 0]);
    assert_eq!(first_byte(&space, 2), 0);
    let mut tail = [9; 20];
    assert_eq!(file.read(Copy::InMemory, PAGE_SIZE as u64, &mut tail), 20);
    assert_eq!((&tail[..10], &tail[10..]), (&[2; 10][..], &[0; 10][..]));
    assert_eq!(
        stored(&file, 0),
        u64::from_ne_bytes([1; 8]),
        "it is on the disk"
    );
}

#[test]
fn a_failed_sync_leaves_its_pages_dirty() {
    let _turn = Turn::new();
    let (file, space) = mapper();
    put(&space, 0, 5);
    let rest = frames::capacity() / 2 - 1;
    let hog = file_of(rest);
    let change = hog.change();
    for page in 0..rest {
        change.write((page * PAGE_SIZE) as u64, &[1]).unwrap();
    }
    assert_eq!(file.sync(PageRange::WHOLE), Err(MapError::NoSpace));
    assert_eq!(all_stored(&file)[0], 0);
    change.set_size(0).unwrap();
    sync(&file);
    assert_eq!(all_stored(&file)[0], 5);
}

#[test]
fn a_file_opened_for_reading_is_never_written_to() {
    let _turn = Turn::new();
    let file = file_of(PAGES);
    let space = MemorySpace::new().unwrap();
    let shown = FileArea::new(file.clone(), 0, false);
    let request = MapRequest {
        prot: Prot::READ,
        populate: Populate::Now,
        kind: AreaKind::SharedFile(shown),
        ..request(BASE, PAGES)
    };
    space.map(request).unwrap();
    assert!((0..PAGES).all(|page| entry(&space, page).is_some() && !may_write(&space, page)));
    assert_eq!(space.fault(at(0), REFUSED), Err(FaultError::NotWritable));
    let denied = space.protect(BASE, BYTES, Prot::READ_WRITE);
    assert_eq!(denied, Err(MapError::Denied));
}

#[test]
fn a_cut_reaches_who_may_only_read() {
    let _turn = Turn::new();
    let file = file_of(PAGES);
    let space = MemorySpace::new().unwrap();
    map_to_read(&space, BASE, PAGES, (&file, 0, false));
    space.fault(at(PAGES - 1), READ).unwrap();
    let child = space.fork().unwrap();
    child.fault(at(PAGES - 1), READ).unwrap();
    resize(&file, 1);
    for space in [&space, &child] {
        assert_eq!(entry(space, PAGES - 1), None);
        let beyond = space.fault(at(PAGES - 1), READ);
        assert_eq!(beyond, Err(FaultError::BeyondFile));
    }
}

/// What a call may do depends on the areas of its range, not on those that begin where it ends or end where it begins.
#[test]
fn neighbours_have_no_say() {
    let _turn = Turn::new();
    let file = file_of(PAGES);
    let space = mapped(2, AreaKind::Anonymous);
    map_to_read(&space, at(2), 1, (&file, 0, false));
    map_to_read(&space, BASE - PAGE_SIZE, 1, (&file, 0, false));
    let own = 2 * PAGE_SIZE;
    space.protect(BASE, own, Prot::READ).unwrap();
    space.protect(BASE, own, Prot::READ_WRITE).unwrap();
    for (addr, len) in [(BASE, own + 1), (BASE - PAGE_SIZE, own)] {
        let refused = space.protect(addr, len, Prot::READ_WRITE);
        assert_eq!(refused, Err(MapError::Denied));
    }
}

/// Neighbours that show consecutive pages keep the rights of their descriptors.
#[test]
fn what_may_be_written_to_does_not_merge_with_what_may_not() {
    let _turn = Turn::new();
    let file = file_of(PAGES);
    for writable in [0, 1] {
        let space = MemorySpace::new().unwrap();
        for page in [0, 1] {
            map_to_read(&space, at(page), 1, (&file, page, page == writable));
        }
        assert_eq!(space.areas().unwrap().len(), 2);
        let protect = |page| space.protect(at(page), PAGE_SIZE, Prot::READ_WRITE);
        assert_eq!(protect(1 - writable), Err(MapError::Denied));
        assert_eq!(protect(writable), Ok(()));
    }
}

/// A reader copies from it without a lock.
#[test]
fn a_part_keeps_its_page_whatever_the_file_gives_up() {
    let _turn = Turn::new();
    let file = file_of(0);
    file.change().write(0, &[5; PAGE_SIZE]).unwrap();
    sync(&file);
    let part = file.part(Copy::InMemory, 8, PAGE_SIZE);
    assert_eq!(part.len(), PAGE_SIZE - 8);
    assert_eq!(file.evict(), Ok(0), "somebody reads it");
    file.change().set_size(0).unwrap();
    let mut others = Vec::new();
    while let Some(frame) = frames::alloc_zeroed() {
        others.push(frame);
    }
    let mut bytes = [0; PAGE_SIZE];
    part.copy_to(&mut bytes);
    assert_eq!(bytes[..PAGE_SIZE - 8], [5; PAGE_SIZE - 8]);
    let before = frames::free_count();
    drop(part);
    assert_eq!(frames::free_count() - before, 1);
    others.into_iter().for_each(frames::free);
    assert_eq!(file.part(Copy::InMemory, 0, 1).len(), 0, "the end");
}
