//! Address spaces end to end: areas, page tables, frames and flushes, without a processor.

use shootdown_kernel_tests::mm::{self, Advice, AreaKind, Destination, FaultAccess, FaultError};
use shootdown_kernel_tests::mm::{
    Lending, MapError, MapRequest, MemorySpace, PAGE_SIZE, Placement, Populate,
};
use shootdown_kernel_tests::mm::{Prot, frames, layout};
use shootdown_kernel_tests::platform::{SHOOTDOWN, flushes};
use shootdown_kernel_tests::{arch, memory};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const READ: FaultAccess = FaultAccess {
    write: false,
    exec: false,
    user: true,
    present: false,
};
const WRITE: FaultAccess = FaultAccess {
    write: true,
    ..READ
};
const FETCH: FaultAccess = FaultAccess { exec: true, ..READ };

/// One test at a time: they count frames and flushes of one machine.
struct Machine {
    space: Option<Arc<MemorySpace>>,
    frames: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Machine {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        memory::init();
        let frames = frames::free_count();
        let space = MemorySpace::new().unwrap();
        space.activate(None);
        Self {
            space: Some(space),
            frames,
            _turn: turn,
        }
    }

    fn space(&self) -> &MemorySpace {
        self.space.as_ref().unwrap()
    }

    fn map(&self, addr: usize, pages: usize) -> Result<usize, MapError> {
        self.space().map(request(addr, pages, Placement::Fixed))
    }

    fn used(&self) -> usize {
        self.frames - frames::free_count()
    }
}

impl Drop for Machine {
    /// Every test ends with every frame back.
    fn drop(&mut self) {
        if let Some(space) = self.space.take() {
            space.deactivate();
        }
        if !std::thread::panicking() {
            assert_eq!(frames::free_count(), self.frames, "frames are lost");
        }
    }
}

fn request(addr: usize, pages: usize, placement: Placement) -> MapRequest {
    MapRequest {
        addr,
        len: pages * PAGE_SIZE,
        prot: Prot::READ_WRITE,
        placement,
        populate: Populate::OnDemand,
        kind: AreaKind::Anonymous,
    }
}

const AT: usize = 0x4000_0000;
/// Root, and one table of each level.
const TABLES: usize = 4;

#[test]
fn pages_come_on_demand_and_go_with_the_space() {
    let machine = Machine::new();
    machine.map(AT, 3).unwrap();
    assert_eq!(machine.used(), 1, "only the root");
    machine.space().fault(AT + 5, READ).unwrap();
    machine.space().fault(AT + PAGE_SIZE, WRITE).unwrap();
    assert_eq!(machine.used(), TABLES + 2);
    machine.space().fault(AT + 9, WRITE).unwrap();
    assert_eq!(
        machine.used(),
        TABLES + 2,
        "the second fault on a page finds it"
    );
}

#[test]
fn faults_name_their_reason() {
    let machine = Machine::new();
    let space = machine.space();
    let stack = MapRequest {
        kind: AreaKind::Stack,
        ..request(0, 1, Placement::Fixed)
    };
    space
        .map(MapRequest {
            addr: layout::STACK_TOP - PAGE_SIZE,
            ..stack
        })
        .unwrap();
    machine.map(AT, 1).unwrap();
    assert_eq!(space.fault(AT, FETCH), Err(FaultError::NotExecutable));
    assert_eq!(
        space.fault(AT + PAGE_SIZE, READ),
        Err(FaultError::NoMapping)
    );
    assert_eq!(space.fault(0, READ), Err(FaultError::NoMapping));
    assert_eq!(
        space.fault(usize::MAX, READ),
        Err(FaultError::KernelAddress)
    );
    assert_eq!(
        space.fault(mm::USER_END, READ),
        Err(FaultError::KernelAddress)
    );
    space.protect(AT, PAGE_SIZE, Prot::READ).unwrap();
    assert_eq!(space.fault(AT, WRITE), Err(FaultError::NotWritable));
    space.protect(AT, PAGE_SIZE, Prot::NONE).unwrap();
    assert_eq!(space.fault(AT, READ), Err(FaultError::NotReadable));
    let limit = layout::STACK_TOP - layout::STACK_LIMIT;
    assert_eq!(
        space.fault(limit - 1, WRITE),
        Err(FaultError::StackOverflow)
    );
    assert_eq!(space.fault(limit + 1, WRITE), Ok(()));
}

#[test]
fn a_stack_does_not_grow_into_a_neighbour() {
    let machine = Machine::new();
    let space = machine.space();
    let stack = request(layout::STACK_TOP - PAGE_SIZE, 1, Placement::Fixed);
    space
        .map(MapRequest {
            kind: AreaKind::Stack,
            ..stack
        })
        .unwrap();
    machine.map(layout::STACK_TOP - 300 * PAGE_SIZE, 1).unwrap();
    assert_eq!(
        space.fault(layout::STACK_TOP - 20 * PAGE_SIZE, WRITE),
        Ok(())
    );
    let near = layout::STACK_TOP - 290 * PAGE_SIZE;
    assert_eq!(space.fault(near, WRITE), Err(FaultError::StackOverflow));
}

#[test]
fn discarding_flushes_and_frees_and_reads_zero_again() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 4).unwrap();
    space.write_initial(AT + 100, b"old").unwrap();
    let before = flushes();
    space.advise(AT, 4 * PAGE_SIZE, Advice::Discard).unwrap();
    assert_eq!(flushes(), before + 1);
    assert_eq!(machine.used(), TABLES, "tables stay");
    space.advise(AT, 4 * PAGE_SIZE, Advice::Discard).unwrap();
    assert_eq!(flushes(), before + 1, "nothing there, nothing to flush");
    assert_eq!(
        space.advise(AT, 5 * PAGE_SIZE, Advice::Discard),
        Err(MapError::NoMemory)
    );
    assert_eq!(
        space.advise(AT + 1, PAGE_SIZE, Advice::Discard),
        Err(MapError::Invalid)
    );
    assert_eq!(space.advise(AT, 0, Advice::Discard), Ok(()));
    let all = 4 * PAGE_SIZE;
    for kind in [AreaKind::File, AreaKind::Image] {
        let file = MapRequest {
            kind,
            ..request(AT + PAGE_SIZE, 1, Placement::Fixed)
        };
        space.map(file).unwrap();
        assert_eq!(
            space.advise(AT, all, Advice::Discard),
            Err(MapError::Invalid)
        );
        assert_eq!(space.advise(AT, all, Advice::Ignore), Ok(()));
    }
}

#[test]
fn unmapping_frees_tables_that_nobody_else_needs() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 2).unwrap();
    space.fault(AT, WRITE).unwrap();
    space.fault(AT + PAGE_SIZE, WRITE).unwrap();
    space.unmap(AT, PAGE_SIZE).unwrap();
    assert_eq!(
        machine.used(),
        TABLES + 1,
        "the neighbour still needs the tables"
    );
    space.unmap(AT, 2 * PAGE_SIZE).unwrap();
    assert_eq!(machine.used(), 1, "only the root is left");
    assert_eq!(space.fault(AT, READ), Err(FaultError::NoMapping));
    space.unmap(AT, PAGE_SIZE).unwrap();
}

#[test]
fn one_unmap_of_everything_is_one_flush() {
    let machine = Machine::new();
    let space = machine.space();
    for place in [
        0x1_0000,
        AT,
        0x1234_5678_9000,
        layout::STACK_TOP - PAGE_SIZE,
    ] {
        machine.map(place, 1).unwrap();
        space.fault(place, WRITE).unwrap();
    }
    let before = flushes();
    space.unmap(0, layout::USER_END).unwrap();
    assert_eq!(flushes(), before + 1);
    assert_eq!(machine.used(), 1);
}

#[test]
fn protection_keeps_the_data_also_without_any_access() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 1).unwrap();
    space.write_initial(AT, b"kept").unwrap();
    let used = machine.used();
    let before = flushes();
    space.protect(AT, PAGE_SIZE, Prot::NONE).unwrap();
    assert_eq!(flushes(), before + 1);
    space.protect(AT, PAGE_SIZE, Prot::READ_WRITE).unwrap();
    assert_eq!(flushes(), before + 1, "gaining rights needs no flush");
    space.fault(AT, WRITE).unwrap();
    assert_eq!(machine.used(), used, "the frame is still the same one");
    space.protect(AT, PAGE_SIZE, Prot::READ).unwrap();
    assert_eq!(flushes(), before + 2);
    space.protect(AT, PAGE_SIZE, Prot::NONE).unwrap();
    space.unmap(AT, PAGE_SIZE).unwrap();
    assert_eq!(machine.used(), 1, "a parked frame is freed too");
}

#[test]
fn placement_follows_linux() {
    let machine = Machine::new();
    let space = machine.space();
    let top = space.map(request(0, 1, Placement::Anywhere)).unwrap();
    assert_eq!(top, layout::MMAP_TOP - PAGE_SIZE);
    assert_eq!(
        space.map(request(0, 2, Placement::Anywhere)).unwrap(),
        top - 2 * PAGE_SIZE
    );
    assert_eq!(
        space.map(request(AT, 1, Placement::Anywhere)),
        Ok(AT),
        "a free wish is granted"
    );
    assert_ne!(space.map(request(AT, 1, Placement::Anywhere)), Ok(AT));
    assert_eq!(
        space.map(request(AT, 1, Placement::FixedIfFree)),
        Err(MapError::Exists)
    );
    assert_eq!(machine.map(0, 1), Err(MapError::Forbidden));
    assert_eq!(machine.map(AT + 1, 1), Err(MapError::Invalid));
    assert_eq!(machine.map(AT, 0), Err(MapError::Invalid));
    assert_eq!(
        machine.map(AT, layout::USER_END / PAGE_SIZE),
        Err(MapError::NoMemory)
    );
    assert!(
        space
            .map(request(
                0,
                layout::USER_END / PAGE_SIZE,
                Placement::Anywhere
            ))
            .is_err()
    );
}

#[test]
fn a_fixed_mapping_replaces_what_was_there() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 3).unwrap();
    for page in 0..3 {
        space.fault(AT + page * PAGE_SIZE, WRITE).unwrap();
    }
    let read_only = MapRequest {
        prot: Prot::READ,
        ..request(AT + PAGE_SIZE, 1, Placement::Fixed)
    };
    space.map(read_only).unwrap();
    assert_eq!(machine.used(), TABLES + 2);
    assert_eq!(
        space.fault(AT + PAGE_SIZE, WRITE),
        Err(FaultError::NotWritable)
    );
    space.fault(AT + PAGE_SIZE, READ).unwrap();
    assert_eq!(space.areas().unwrap().len(), 3);
}

#[test]
fn moving_takes_the_frames_along() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 3).unwrap();
    machine.map(AT + 3 * PAGE_SIZE, 1).unwrap();
    for page in 0..4 {
        space.fault(AT + page * PAGE_SIZE, WRITE).unwrap();
    }
    let len = 3 * PAGE_SIZE;
    assert_eq!(
        space.remap(AT, len, 2 * len, Destination::Stay),
        Err(MapError::NoMemory)
    );
    let to = space.remap(AT, len, 2 * len, Destination::MayMove).unwrap();
    assert_ne!(to, AT);
    assert_eq!(
        machine.used(),
        TABLES + 3 + 4,
        "the same frames, and tables for the new place"
    );
    assert_eq!(space.fault(AT, READ), Err(FaultError::NoMapping));
    space.fault(to + 5 * PAGE_SIZE, WRITE).unwrap();
    assert_eq!(
        space.remap(to, 2 * len, PAGE_SIZE, Destination::Stay),
        Ok(to)
    );
    assert_eq!(
        space.fault(to + PAGE_SIZE, READ),
        Err(FaultError::NoMapping)
    );
    let fixed = Destination::Fixed(AT + 3 * PAGE_SIZE);
    assert_eq!(
        space.remap(to, PAGE_SIZE, PAGE_SIZE, fixed),
        Ok(AT + 3 * PAGE_SIZE)
    );
    assert_eq!(machine.used(), TABLES + 1);
    assert_eq!(
        space.remap(to, PAGE_SIZE, PAGE_SIZE, fixed),
        Err(MapError::NotMapped)
    );
    assert_eq!(space.remap(AT, 0, PAGE_SIZE, fixed), Err(MapError::Invalid));
}

/// Found by the user program `t_remap`: the table was pruned with the old range.
#[test]
fn a_move_within_one_table_keeps_the_table() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 1).unwrap();
    space.fault(AT, WRITE).unwrap();
    let to = AT + 8 * PAGE_SIZE;
    assert_eq!(
        space.remap(AT, PAGE_SIZE, PAGE_SIZE, Destination::Fixed(to)),
        Ok(to)
    );
    assert_eq!(machine.used(), TABLES + 1);
}

/// The last table too, when the move begins in the middle of one.
#[test]
fn a_move_across_tables_takes_every_frame_along() {
    const TABLE_PAGES: usize = 512;
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 4).unwrap();
    for page in 0..4 {
        space.fault(AT + page * PAGE_SIZE, WRITE).unwrap();
    }
    let to = AT + (3 * TABLE_PAGES - 2) * PAGE_SIZE;
    let len = 4 * PAGE_SIZE;
    assert_eq!(space.remap(AT, len, len, Destination::Fixed(to)), Ok(to));
    assert_eq!(machine.used(), TABLES + 1 + 4);
    for page in 0..4 {
        space.fault(to + page * PAGE_SIZE, READ).unwrap();
    }
    assert_eq!(machine.used(), TABLES + 1 + 4, "all are there");
}

#[test]
fn growing_in_place_uses_free_room() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT, 1).unwrap();
    assert_eq!(
        space.remap(AT, PAGE_SIZE, 4 * PAGE_SIZE, Destination::Stay),
        Ok(AT)
    );
    assert_eq!(space.areas().unwrap().len(), 1);
}

/// A table is freed as soon as it serves no area, also one whose last address is next to one.
#[test]
fn a_table_between_two_areas_is_freed() {
    const TABLE_BYTES: usize = 512 * PAGE_SIZE;
    const START: usize = AT.next_multiple_of(TABLE_BYTES) + TABLE_BYTES;
    let machine = Machine::new();
    let space = machine.space();
    for next_to_it in [START - PAGE_SIZE, START + TABLE_BYTES] {
        machine.map(next_to_it, 1).unwrap();
        space.fault(next_to_it, WRITE).unwrap();
    }
    let before = machine.used();
    machine.map(START, 512).unwrap();
    space.fault(START, WRITE).unwrap();
    assert_eq!(machine.used() - before, 2, "a page and its table");
    space.unmap(START, TABLE_BYTES).unwrap();
    assert_eq!(machine.used(), before);
}

#[test]
fn the_heap_moves_both_ways() {
    let machine = Machine::new();
    let space = machine.space();
    space.set_heap_start(AT);
    assert_eq!(space.brk(0), AT);
    assert_eq!(space.brk(AT + 100), AT + 100);
    assert_eq!(space.brk(AT + 200), AT + 200, "within a page");
    assert_eq!(space.brk(0), AT + 200, "as it was left");
    assert_eq!(space.brk(AT + 5000), AT + 5000);
    space.fault(AT + 4096, WRITE).unwrap();
    assert_eq!(space.brk(AT + 10), AT + 10);
    assert_eq!(space.fault(AT + 4096, WRITE), Err(FaultError::NoMapping));
    assert_eq!(space.brk(AT), AT);
    assert_eq!(space.areas().unwrap().len(), 0);
    machine.map(AT + 64 * PAGE_SIZE, 1).unwrap();
    assert_eq!(
        space.brk(AT + 65 * PAGE_SIZE),
        AT,
        "not over another mapping"
    );
    assert_eq!(space.brk(usize::MAX), AT);
}

/// What lies below it is the program's.
#[test]
fn the_heap_does_not_end_below_its_start() {
    let machine = Machine::new();
    let space = machine.space();
    machine.map(AT - 2 * PAGE_SIZE, 2).unwrap();
    space.fault(AT - 1, WRITE).unwrap();
    space.set_heap_start(AT);
    for below in [AT - 1, AT - PAGE_SIZE, AT - 2 * PAGE_SIZE, 1] {
        assert_eq!(space.brk(below), AT);
    }
    assert_eq!(space.brk(AT + 1), AT + 1);
    assert_eq!(space.brk(AT - 1), AT + 1);
    assert_eq!(space.fault(AT - 1, WRITE), Ok(()));
    assert_eq!(space.areas().unwrap().len(), 2);
}

/// The bytes of a frame.
fn contents(frame: &mut frames::Frame) -> &mut [u8; PAGE_SIZE] {
    let bytes = frame.address().to_direct().cast::<[u8; PAGE_SIZE]>();
    // SAFETY: the frame is the caller's, in simulated memory.
    unsafe { &mut *bytes }
}

/// Of what its last owner wrote nothing is left, not even at the end.
#[test]
fn fresh_pages_are_zero_from_end_to_end() {
    let machine = Machine::new();
    for _ in 0..3 {
        let mut used = frames::alloc().unwrap();
        contents(&mut used).fill(0xa5);
        frames::free(used);
        let mut fresh = frames::alloc_zeroed().unwrap();
        assert!(contents(&mut fresh).iter().all(|byte| *byte == 0));
        contents(&mut fresh).fill(0xa5);
        frames::free(fresh);
    }
    drop(machine);
}

/// Nor around what a loader puts into a page.
#[test]
fn initial_contents_lie_among_zeroes() {
    let machine = Machine::new();
    machine.map(AT, 1).unwrap();
    let used: Vec<_> = std::iter::from_fn(frames::alloc).collect();
    for mut frame in used {
        contents(&mut frame).fill(0xa5);
        frames::free(frame);
    }
    machine.space().write_initial(AT + 100, b"new").unwrap();
    let mut shares = Vec::with_capacity(1);
    let range = mm::range::UserRange::new(AT, PAGE_SIZE).unwrap();
    let lent = machine
        .space()
        .lend(range, Lending::Reading, &mut shares, || false);
    assert_eq!(lent, Ok(()));
    let page = shares[0].address().to_direct().cast::<[u8; PAGE_SIZE]>();
    // SAFETY: a frame of simulated memory that nobody writes to now.
    let page = unsafe { page.read() };
    assert_eq!(&page[100..103], b"new");
    assert!(
        page[..100]
            .iter()
            .chain(&page[103..])
            .all(|byte| *byte == 0)
    );
    mm::lend::release(&mut shares);
}

#[test]
fn population_stops_where_memory_ends_and_a_fault_says_so() {
    let machine = Machine::new();
    let space = machine.space();
    let all = memory::FRAMES + 100;
    let now = MapRequest {
        populate: Populate::Now,
        ..request(AT, all, Placement::Fixed)
    };
    space.map(now).unwrap();
    assert_eq!(frames::free_count(), 0);
    assert_eq!(
        space.fault(AT + (all - 1) * PAGE_SIZE, WRITE),
        Err(FaultError::OutOfMemory)
    );
    assert_eq!(MemorySpace::new().err(), Some(MapError::NoMemory));
    space.unmap(AT, all * PAGE_SIZE).unwrap();
    assert_eq!(machine.used(), 1);
}

#[test]
fn every_root_has_the_kernel_half() {
    let machine = Machine::new();
    let root = machine.space().engine().root().as_u64() as usize;
    let entries = (layout::PhysAddr::new(root as u64).to_direct()).cast::<[u64; 512]>();
    // SAFETY: the root of a live space, in simulated memory; nobody changes its kernel half.
    let kernel_half = unsafe { &(&(*entries))[256..] };
    assert_eq!(kernel_half, arch::paging::kernel_half());
    assert!(SHOOTDOWN.total_stats().iter().count() > 0);
}
