//! Lent pages, the areas that show them, and the place that windows have, without a processor.

mod support;

use shootdown::{FlushRange, PageSize};
use shootdown_kernel_tests::arch::top::copy_top;
use shootdown_kernel_tests::errno::Errno;
use shootdown_kernel_tests::mm::frames::{self, Share};
use shootdown_kernel_tests::mm::layout::{PhysAddr, WINDOWS};
use shootdown_kernel_tests::mm::page_table::PageTable;
use shootdown_kernel_tests::mm::range::UserRange;
use shootdown_kernel_tests::mm::{AreaKind, Destination, Lending, MapError, MapRequest};
use shootdown_kernel_tests::mm::{MemorySpace, PAGE_SIZE, Placement, Prot, lend};
use shootdown_kernel_tests::platform::flushes;
use support::*;

const PAGES: usize = 3;
/// Bytes that an entry of the root table translates.
const TOP_ENTRY: usize = 1 << 39;

fn range(pages: usize) -> UserRange {
    UserRange::new(BASE, pages * PAGE_SIZE).unwrap()
}

fn lent(space: &MemorySpace, lending: Lending) -> Vec<Share> {
    support::lent(space, PAGES, lending)
}

fn first_word(share: &Share) -> *mut u64 {
    share.address().to_direct().cast()
}

#[test]
fn lent_pages_outlive_their_mapping() {
    let turn = Turn::new();
    let space = written(PAGES);
    let mut pages = lent(&space, Lending::Reading);
    unmap(&space, 0, PAGES);
    for (page, share) in pages.iter().enumerate() {
        // SAFETY: a word of a frame of the simulated memory.
        assert_eq!(unsafe { first_word(share).read() }, page as u64 + 1);
    }
    drop(space);
    assert_eq!(frames::free_count(), turn.frames - PAGES);
    lend::release(&mut pages);
}

#[test]
fn pages_are_made_and_copied_as_if_the_program_had_touched_them() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    let mut pages = lent(&parent, Lending::Writing);
    // SAFETY: as above.
    unsafe { first_word(&pages[0]).write(100) };
    assert_eq!((read(&parent, 0), read(&child, 0)), (100, 1));
    lend::release(&mut pages);
    // A page that nobody has touched reads zero.
    let fresh = mapped(PAGES, AreaKind::Anonymous);
    let mut pages = lent(&fresh, Lending::Reading);
    assert_eq!(read(&fresh, PAGES - 1), 0);
    lend::release(&mut pages);
}

#[test]
fn only_what_the_program_may_access_is_lent() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let mut pages = Vec::with_capacity(PAGES + 1);
    let refused = space.lend(range(PAGES + 1), Lending::Reading, &mut pages, || false);
    assert_eq!(refused, Err(Errno::EFAULT));
    lend::release(&mut pages);
    protect(&space, 0, 1, Prot::READ);
    let refused = space.lend(range(1), Lending::Writing, &mut pages, || false);
    assert_eq!(refused, Err(Errno::EFAULT));
    protect(&space, 0, 1, Prot::NONE);
    let refused = space.lend(range(1), Lending::Reading, &mut pages, || false);
    assert_eq!((refused, pages.len()), (Err(Errno::EFAULT), 0));
}

/// What was lent before it stopped is the caller's to give back, in order, each page once.
#[test]
fn a_loan_that_stops_in_the_middle_has_what_was_lent_by_then() {
    let turn = Turn::new();
    let words = |pages: &[Share]| -> Vec<u64> {
        // SAFETY: a word of a frame of the simulated memory.
        let word = |share| unsafe { first_word(share).read() };
        pages.iter().map(word).collect()
    };
    let stops = [
        (Errno::EFAULT, false),
        (Errno::EINTR, true),
        (Errno::ENOMEM, false),
    ];
    for (errno, is_ending) in stops {
        let space = written(PAGES);
        match errno {
            Errno::EFAULT => protect(&space, 1, 1, Prot::NONE),
            _ => discard(&space, 1, 1),
        }
        let hoard = match errno {
            Errno::ENOMEM => exhaust(),
            _ => Vec::new(),
        };
        let mut pages = Vec::with_capacity(PAGES);
        let stopped = space.lend(range(PAGES), Lending::Writing, &mut pages, || is_ending);
        assert_eq!((stopped, words(&pages)), (Err(errno), vec![1]));
        give_back(hoard);
        drop(space);
        assert_eq!(frames::free_count(), turn.frames - 1, "one is kept");
        lend::release(&mut pages);
        assert_eq!(frames::free_count(), turn.frames);
    }
    let space = written(PAGES);
    discard(&space, 1, 1);
    let mut pages = lent(&space, Lending::Writing);
    assert_eq!(words(&pages), [1, 0, 3], "it goes on where it stopped");
    lend::release(&mut pages);
}

#[test]
fn guests_are_shown_and_hidden_with_one_flush() {
    let _turn = Turn::new();
    let (client, server) = (written(PAGES), MemorySpace::new().unwrap());
    server.activate(None);
    let guests = server.make_room_for_guests(PAGES * PAGE_SIZE).unwrap();
    for lending in [Lending::Reading, Lending::Writing] {
        let mut pages = lent(&client, lending);
        let before = flushes();
        assert!(server.show_guests(&guests, &mut pages, lending));
        assert!(pages.is_empty());
        assert_eq!(flushes(), before);
        // They are not the server's to lend.
        let shown = UserRange::new(guests.start(), PAGE_SIZE).unwrap();
        let lent_on = server.lend(shown, Lending::Reading, &mut pages, || false);
        assert_eq!((lent_on, pages.len()), (Err(Errno::EFAULT), 0));
        server.hide_guests(&guests);
        assert_eq!(flushes(), before + 1);
    }
    // Beyond what is shown is nothing, whatever is asked for.
    assert!(server.fault(guests.start(), READ).is_err());
    let change = server.protect(guests.start(), PAGE_SIZE, Prot::READ_WRITE);
    assert_eq!(change, Err(MapError::Denied));
    let (from, to) = (guests.start(), Destination::MayMove);
    let moved = server.remap(from, PAGE_SIZE, 2 * PAGE_SIZE, to);
    assert_eq!(moved, Err(MapError::Invalid));
    server.remove_guests(&guests);
    server.deactivate();
}

#[test]
fn a_program_that_unmaps_its_guests_gives_them_up() {
    let _turn = Turn::new();
    let (client, server) = (written(PAGES), MemorySpace::new().unwrap());
    let guests = server.make_room_for_guests(PAGES * PAGE_SIZE).unwrap();
    let mut pages = lent(&client, Lending::Reading);
    assert!(server.show_guests(&guests, &mut pages, Lending::Reading));
    let child = server.fork().unwrap();
    assert!(child.areas().unwrap().is_empty(), "a child has no guests");
    // In the middle: two parts are left.
    server.unmap(guests.start() + PAGE_SIZE, PAGE_SIZE).unwrap();
    server.hide_guests(&guests);
    let mut pages = lent(&client, Lending::Reading);
    assert!(!server.show_guests(&guests, &mut pages, Lending::Reading));
    lend::release(&mut pages);
    server.remove_guests(&guests);
    assert!(server.areas().unwrap().is_empty());
    assert_eq!(read(&client, 0), 1);
}

/// Whoever has the place now keeps what it shows.
#[test]
fn an_area_that_was_unmapped_has_no_say_over_its_successor() {
    let _turn = Turn::new();
    let (client, server) = (written(PAGES), MemorySpace::new().unwrap());
    let bytes = PAGES * PAGE_SIZE;
    let former = server.make_room_for_guests(bytes).unwrap();
    server.unmap(former.start(), bytes).unwrap();
    let guests = server.make_room_for_guests(bytes).unwrap();
    assert_eq!(guests.start(), former.start());
    let mut pages = lent(&client, Lending::Reading);
    assert!(!server.show_guests(&former, &mut pages, Lending::Reading));
    assert!(server.show_guests(&guests, &mut pages, Lending::Reading));
    server.activate(None);
    let before = flushes();
    server.hide_guests(&former);
    server.remove_guests(&former);
    assert_eq!((flushes(), server.areas().unwrap().len()), (before, 1));
    server.hide_guests(&guests);
    assert_eq!(flushes(), before + 1, "they were shown until now");
    server.remove_guests(&guests);
    server.deactivate();
}

#[test]
fn nothing_is_mapped_where_windows_are() {
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    let anywhere = |addr| MapRequest {
        placement: Placement::Anywhere,
        ..request(addr, 2)
    };
    let start = WINDOWS.start;
    for addr in [start, start - PAGE_SIZE, WINDOWS.end - PAGE_SIZE] {
        let fixed = space.map(request(addr, 2));
        assert_eq!(fixed, Err(MapError::NoMemory));
        let wished = space.map(anywhere(addr)).unwrap();
        let wished = UserRange::new(wished, 2 * PAGE_SIZE).unwrap();
        assert!(!wished.touches_windows());
    }
    let beside = space.map(request(WINDOWS.end, 2)).unwrap();
    let to = Destination::Fixed(WINDOWS.start);
    let moved = space.remap(beside, 2 * PAGE_SIZE, 2 * PAGE_SIZE, to);
    assert_eq!(moved, Err(MapError::NoMemory));
    // A mapping so large that it fits below windows only.
    let large = MapRequest {
        len: 0x3000_0000_0000,
        ..anywhere(0)
    };
    let low = space.map(large).unwrap();
    assert!(low + 0x3000_0000_0000 <= WINDOWS.start);
}

#[test]
fn a_private_root_has_what_the_shared_one_has_but_for_windows() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let mut private = PageTable::new().unwrap();
    private.leaf_or_create(WINDOWS.start).unwrap();
    let shared = PhysAddr::new(space.engine().root());
    copy_top(shared, private.root(), FlushRange::WHOLE);
    assert!(private.leaf(BASE).is_some() && private.leaf(WINDOWS.start).is_some());
    let found = private.leaf(BASE).unwrap().load().frame();
    let expected = entry(&space, 0).unwrap() & ADDRESS;
    assert_eq!(found.map(PhysAddr::as_u64), Some(expected));
    assert!(may_write(&space, 0));
    // The tables of the space stay its own.
    private.forget_shared_top();
    assert!(private.leaf(BASE).is_none() && private.leaf(WINDOWS.start).is_some());
    // A range brings every entry that it touches, and no other.
    for (start, end, is_copied) in [
        (BASE, BASE + 1, true),
        (0, TOP_ENTRY, true),
        (TOP_ENTRY - PAGE_SIZE, 2 * TOP_ENTRY, true),
        (TOP_ENTRY, 2 * TOP_ENTRY, false),
    ] {
        let range = FlushRange::new(start, end, PageSize::SIZE_4K);
        copy_top(shared, private.root(), range);
        assert_eq!(private.leaf(BASE).is_some(), is_copied, "{range:?}");
        private.forget_shared_top();
    }
}

#[test]
fn changes_of_the_root_table_are_told_once() {
    let _turn = Turn::new();
    let mut table = PageTable::new().unwrap();
    assert!(!table.take_top_change());
    table.leaf_or_create(BASE).unwrap();
    assert!(table.take_top_change() && !table.take_top_change());
    table.leaf_or_create(BASE + PAGE_SIZE).unwrap();
    assert!(!table.take_top_change());
    let range = UserRange::new(BASE, PAGE_SIZE).unwrap();
    table.prune(range, (0, usize::MAX), |_, _, table| frames::free(table));
    assert!(table.take_top_change());
}
