//! Address spaces end to end: areas, page tables, frames and flushes, without a processor.

mod support;

use shootdown_kernel_tests::mm::{self, Advice, AreaKind, Destination, FaultAccess, FaultError};
use shootdown_kernel_tests::mm::{MapError, MapRequest, MemorySpace, PAGE_SIZE, Placement};
use shootdown_kernel_tests::mm::{Populate, Prot, frames, layout};
use shootdown_kernel_tests::platform::{SHOOTDOWN, flushes};
use shootdown_kernel_tests::{arch, memory};
use std::ops::Deref;
use std::sync::Arc;
use support::{BASE, READ, ROOTS, Turn, WRITE, at, discard, protect, remap, request, unmap};

const FETCH: FaultAccess = FaultAccess { exec: true, ..READ };

/// A space that this CPU has loaded.
struct Loaded {
    space: Arc<MemorySpace>,
    turn: Turn,
}

impl Loaded {
    fn new() -> Self {
        let turn = Turn::new();
        let space = MemorySpace::new().unwrap();
        space.activate(None);
        Self { space, turn }
    }

    /// Maps pages and touches each of them.
    fn touched(pages: usize) -> Self {
        let space = Self::new();
        space.map_at(BASE, pages).unwrap();
        (0..pages).for_each(|page| space.fault(at(page), WRITE).unwrap());
        space
    }

    fn map_at(&self, addr: usize, pages: usize) -> Result<usize, MapError> {
        self.map(request(addr, pages))
    }

    fn map_anywhere(&self, addr: usize, pages: usize) -> Result<usize, MapError> {
        let placement = Placement::Anywhere;
        self.map(MapRequest {
            placement,
            ..request(addr, pages)
        })
    }

    fn map_kind(&self, addr: usize, kind: AreaKind) {
        let request = request(addr, 1);
        self.map(MapRequest { kind, ..request }).unwrap();
    }

    /// Frames that were free before.
    fn used(&self) -> usize {
        self.turn.frames - frames::free_count()
    }
}

impl Deref for Loaded {
    type Target = MemorySpace;

    fn deref(&self) -> &MemorySpace {
        &self.space
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.space.deactivate();
    }
}

/// Root, and one table of each level.
const TABLES: usize = ROOTS + 3;

#[test]
fn pages_come_on_demand_and_go_with_the_space() {
    let space = Loaded::new();
    space.map_at(BASE, 3).unwrap();
    assert_eq!(space.used(), ROOTS, "only the root");
    space.fault(BASE + 5, READ).unwrap();
    space.fault(at(1), WRITE).unwrap();
    assert_eq!(space.used(), TABLES + 2);
    space.fault(BASE + 9, WRITE).unwrap();
    assert_eq!(space.used(), TABLES + 2, "the second fault finds the page");
}

#[test]
fn faults_name_their_reason() {
    let space = Loaded::new();
    space.map_kind(layout::STACK_TOP - PAGE_SIZE, AreaKind::Stack);
    space.map_at(BASE, 1).unwrap();
    assert_eq!(space.fault(BASE, FETCH), Err(FaultError::NotExecutable));
    let is_access_violation = [
        (FaultError::NotExecutable, true),
        (FaultError::NotWritable, true),
        (FaultError::NotReadable, true),
        (FaultError::NoMapping, false),
        (FaultError::BeyondFile, false),
        (FaultError::OutOfMemory, false),
    ];
    for (error, expected) in is_access_violation {
        assert_eq!(error.is_access_violation(), expected, "{error:?}");
    }
    for unmapped in [at(1), 0] {
        assert_eq!(space.fault(unmapped, READ), Err(FaultError::NoMapping));
    }
    for kernels in [usize::MAX, mm::USER_END] {
        assert_eq!(space.fault(kernels, READ), Err(FaultError::KernelAddress));
    }
    protect(&space, 0, 1, Prot::READ);
    assert_eq!(space.fault(BASE, WRITE), Err(FaultError::NotWritable));
    protect(&space, 0, 1, Prot::NONE);
    assert_eq!(space.fault(BASE, READ), Err(FaultError::NotReadable));
    let limit = layout::STACK_TOP - layout::STACK_LIMIT;
    let beyond = space.fault(limit - 1, WRITE);
    assert_eq!(beyond, Err(FaultError::StackOverflow));
    assert_eq!(space.fault(limit + 1, WRITE), Ok(()));
}

#[test]
fn a_stack_does_not_grow_into_a_neighbour() {
    let space = Loaded::new();
    let below_top = |pages| layout::STACK_TOP - pages * PAGE_SIZE;
    space.map_kind(below_top(1), AreaKind::Stack);
    space.map_at(below_top(300), 1).unwrap();
    assert_eq!(space.fault(below_top(20), WRITE), Ok(()));
    let near = space.fault(below_top(290), WRITE);
    assert_eq!(near, Err(FaultError::StackOverflow));
}

#[test]
fn discarding_flushes_and_frees_and_reads_zero_again() {
    let space = Loaded::new();
    space.map_at(BASE, 4).unwrap();
    space.write_initial(BASE + 100, b"old").unwrap();
    let before = flushes();
    discard(&space, 0, 4);
    assert_eq!(flushes(), before + 1);
    assert_eq!(space.used(), TABLES, "tables stay");
    discard(&space, 0, 4);
    assert_eq!(flushes(), before + 1, "nothing there, nothing to flush");
    let all = 4 * PAGE_SIZE;
    for (addr, len, outcome) in [
        (BASE, all + PAGE_SIZE, Err(MapError::NoMemory)),
        (BASE + 1, PAGE_SIZE, Err(MapError::Invalid)),
        (BASE, 0, Ok(())),
    ] {
        assert_eq!(space.advise(addr, len, Advice::Discard), outcome);
    }
}

#[test]
fn unmapping_frees_tables_that_nobody_else_needs() {
    let space = Loaded::touched(2);
    unmap(&space, 0, 1);
    assert_eq!(space.used(), TABLES + 1, "the neighbour needs the tables");
    unmap(&space, 0, 2);
    assert_eq!(space.used(), ROOTS, "only the root is left");
    assert_eq!(space.fault(BASE, READ), Err(FaultError::NoMapping));
    unmap(&space, 0, 1);
}

#[test]
fn one_unmap_of_everything_is_one_flush() {
    let space = Loaded::new();
    let last = layout::STACK_TOP - PAGE_SIZE;
    for place in [0x1_0000, BASE, 0x1234_5678_9000, last] {
        space.map_at(place, 1).unwrap();
        space.fault(place, WRITE).unwrap();
    }
    let before = flushes();
    space.unmap(0, layout::USER_END).unwrap();
    assert_eq!(flushes(), before + 1);
    assert_eq!(space.used(), ROOTS);
}

#[test]
fn protection_keeps_the_data_also_without_any_access() {
    let space = Loaded::new();
    space.map_at(BASE, 1).unwrap();
    space.write_initial(BASE, b"kept").unwrap();
    let used = space.used();
    let before = flushes();
    protect(&space, 0, 1, Prot::NONE);
    assert_eq!(flushes(), before + 1);
    protect(&space, 0, 1, Prot::READ_WRITE);
    assert_eq!(flushes(), before + 1, "gaining rights needs no flush");
    space.fault(BASE, WRITE).unwrap();
    assert_eq!(space.used(), used, "the frame is still the same one");
    protect(&space, 0, 1, Prot::READ);
    assert_eq!(flushes(), before + 2);
    protect(&space, 0, 1, Prot::NONE);
    unmap(&space, 0, 1);
    assert_eq!(space.used(), ROOTS, "a parked frame is freed too");
}

#[test]
fn placement_follows_linux() {
    let space = Loaded::new();
    let top = layout::MMAP_TOP - PAGE_SIZE;
    assert_eq!(space.map_anywhere(0, 1), Ok(top));
    assert_eq!(space.map_anywhere(0, 2), Ok(top - 2 * PAGE_SIZE));
    let wish = space.map_anywhere(BASE, 1);
    assert_eq!(wish, Ok(BASE), "a free wish is granted");
    assert_ne!(space.map_anywhere(BASE, 1), Ok(BASE));
    let low = space.map_anywhere(PAGE_SIZE, 1).unwrap();
    assert!(
        low >= layout::USER_START,
        "{low:#x}: not where null pointers lead"
    );
    let if_free = space.map(MapRequest {
        placement: Placement::FixedIfFree,
        ..request(BASE, 1)
    });
    assert_eq!(if_free, Err(MapError::Exists));
    let everything = layout::USER_END / PAGE_SIZE;
    for (addr, pages, error) in [
        (0, 1, MapError::Forbidden),
        (BASE + 1, 1, MapError::Invalid),
        (BASE, 0, MapError::Invalid),
        (BASE, everything, MapError::NoMemory),
    ] {
        assert_eq!(space.map_at(addr, pages), Err(error));
    }
    assert!(space.map_anywhere(0, everything).is_err());
}

#[test]
fn a_fixed_mapping_replaces_what_was_there() {
    let space = Loaded::touched(3);
    let read_only = MapRequest {
        prot: Prot::READ,
        ..request(at(1), 1)
    };
    space.map(read_only).unwrap();
    assert_eq!(space.used(), TABLES + 2);
    assert_eq!(space.fault(at(1), WRITE), Err(FaultError::NotWritable));
    space.fault(at(1), READ).unwrap();
    assert_eq!(space.areas().unwrap().len(), 3);
}

#[test]
fn moving_takes_the_frames_along() {
    let space = Loaded::touched(3);
    space.map_at(at(3), 1).unwrap();
    space.fault(at(3), WRITE).unwrap();
    let no_room = remap(&space, 0, (3, 6), Destination::Stay);
    assert_eq!(no_room, Err(MapError::NoMemory));
    let to = remap(&space, 0, (3, 6), Destination::MayMove).unwrap();
    assert_ne!(to, BASE);
    let frames = TABLES + 3 + 4;
    assert_eq!(space.used(), frames, "the same, and tables for the place");
    assert_eq!(space.fault(BASE, READ), Err(FaultError::NoMapping));
    space.fault(to + 5 * PAGE_SIZE, WRITE).unwrap();
    let shrunk = space.remap(to, 6 * PAGE_SIZE, PAGE_SIZE, Destination::Stay);
    assert_eq!(shrunk, Ok(to));
    let cut_off = space.fault(to + PAGE_SIZE, READ);
    assert_eq!(cut_off, Err(FaultError::NoMapping));
    let to_fixed = |from, len| space.remap(from, len, PAGE_SIZE, Destination::Fixed(at(3)));
    assert_eq!(to_fixed(to, PAGE_SIZE), Ok(at(3)));
    assert_eq!(space.used(), TABLES + 1);
    assert_eq!(to_fixed(to, PAGE_SIZE), Err(MapError::NotMapped));
    assert_eq!(to_fixed(BASE, 0), Err(MapError::NotMapped));
    let private_again = space.remap(at(3), 0, PAGE_SIZE, Destination::MayMove);
    assert_eq!(private_again, Err(MapError::Invalid));
    let to_nothing = space.remap(at(3), PAGE_SIZE, 0, Destination::MayMove);
    assert_eq!(to_nothing, Err(MapError::Invalid));
    for low in [0, PAGE_SIZE, layout::USER_START - PAGE_SIZE] {
        let moved = space.remap(at(3), PAGE_SIZE, PAGE_SIZE, Destination::Fixed(low));
        assert_eq!(moved, Err(MapError::Forbidden), "{low:#x}");
    }
    assert_eq!(space.used(), TABLES + 1);
}

/// Found by the user program `t_remap`: the table was pruned with the old range.
#[test]
fn a_move_within_one_table_keeps_the_table() {
    let space = Loaded::touched(1);
    support::move_to(&space, 0, 1, 8);
    assert_eq!(space.used(), TABLES + 1);
}

#[test]
fn growing_in_place_uses_free_room() {
    let space = Loaded::new();
    space.map_at(BASE, 1).unwrap();
    let grown = remap(&space, 0, (1, 4), Destination::Stay);
    assert_eq!(grown, Ok(BASE));
    assert_eq!(space.areas().unwrap().len(), 1);
}

/// A table is freed as soon as it serves no area, also one whose last address is next to one.
#[test]
fn a_table_between_two_areas_is_freed() {
    const TABLE_BYTES: usize = 512 * PAGE_SIZE;
    const START: usize = BASE.next_multiple_of(TABLE_BYTES) + TABLE_BYTES;
    let space = Loaded::new();
    for next_to_it in [START - PAGE_SIZE, START + TABLE_BYTES] {
        space.map_at(next_to_it, 1).unwrap();
        space.fault(next_to_it, WRITE).unwrap();
    }
    let before = space.used();
    space.map_at(START, 512).unwrap();
    space.fault(START, WRITE).unwrap();
    assert_eq!(space.used() - before, 2, "a page and its table");
    space.unmap(START, TABLE_BYTES).unwrap();
    assert_eq!(space.used(), before);
}

#[test]
fn the_heap_moves_both_ways() {
    let space = Loaded::new();
    space.set_heap_start(BASE);
    assert_eq!(space.brk(0), BASE);
    assert_eq!(space.brk(BASE + 100), BASE + 100);
    assert_eq!(space.brk(BASE + 200), BASE + 200, "within a page");
    assert_eq!(space.brk(0), BASE + 200, "as it was left");
    assert_eq!(space.brk(BASE + 5000), BASE + 5000);
    space.fault(at(1), WRITE).unwrap();
    assert_eq!(space.brk(BASE + 10), BASE + 10);
    assert_eq!(space.fault(at(1), WRITE), Err(FaultError::NoMapping));
    assert_eq!(space.brk(BASE), BASE);
    assert_eq!(space.areas().unwrap().len(), 0);
    space.map_at(at(64), 1).unwrap();
    assert_eq!(space.brk(at(65)), BASE, "not over another mapping");
    assert_eq!(
        space.brk(at(1)),
        BASE,
        "nor as near as a stack would be to it"
    );
    assert_eq!(space.brk(usize::MAX), BASE);
}

/// What lies below it is the program's.
#[test]
fn the_heap_does_not_end_below_its_start() {
    let space = Loaded::new();
    space.map_at(BASE - 2 * PAGE_SIZE, 2).unwrap();
    space.fault(BASE - 1, WRITE).unwrap();
    space.set_heap_start(BASE);
    for below in [BASE - 1, BASE - PAGE_SIZE, BASE - 2 * PAGE_SIZE, 1] {
        assert_eq!(space.brk(below), BASE);
    }
    assert_eq!(space.brk(BASE + 1), BASE + 1);
    assert_eq!(space.brk(BASE - 1), BASE + 1);
    assert_eq!(space.fault(BASE - 1, WRITE), Ok(()));
    assert_eq!(space.areas().unwrap().len(), 2);
}

/// Of what its last owner wrote nothing is left, not even at the end.
#[test]
fn fresh_pages_are_zero_from_end_to_end() {
    let _turn = Turn::new();
    let contents = |frame: &frames::Frame| {
        let bytes = frame.address().to_direct().cast::<[u8; PAGE_SIZE]>();
        // SAFETY: the frame is the caller's, in simulated memory.
        unsafe { &mut *bytes }
    };
    for _ in 0..3 {
        let used = frames::alloc().unwrap();
        contents(&used).fill(0xa5);
        frames::free(used);
        let fresh = frames::alloc_zeroed().unwrap();
        assert!(contents(&fresh).iter().all(|byte| *byte == 0));
        contents(&fresh).fill(0xa5);
        frames::free(fresh);
    }
}

#[test]
fn population_stops_where_memory_ends_and_a_fault_says_so() {
    let space = Loaded::new();
    let all = memory::FRAMES + 100;
    let now = MapRequest {
        populate: Populate::Now,
        ..request(BASE, all)
    };
    space.map(now).unwrap();
    assert_eq!(frames::free_count(), 0);
    let refused = space.fault(at(all - 1), WRITE);
    assert_eq!(refused, Err(FaultError::OutOfMemory));
    assert_eq!(MemorySpace::new().err(), Some(MapError::NoMemory));
    unmap(&space, 0, all);
    assert_eq!(space.used(), ROOTS);
}

#[test]
fn every_root_has_the_kernel_half() {
    let space = Loaded::new();
    let root = layout::PhysAddr::new(space.engine().root());
    let entries = root.to_direct().cast::<[u64; 512]>();
    // SAFETY: the root of a live space, in simulated memory; nobody changes its kernel half.
    let kernel_half = unsafe { &(&(*entries))[256..] };
    let found = kernel_half.iter().zip(arch::paging::kernel_half());
    // Where a user root is noted.
    let other = found.filter(|(found, built)| *found != built);
    assert_eq!(other.count(), ROOTS - 1);
    assert!(SHOOTDOWN.watch().total_stats().iter().count() > 0);
}
