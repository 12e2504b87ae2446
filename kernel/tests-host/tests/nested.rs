//! Memory of virtual machines: nested tables show what the space has, and no more, whatever happens to the space; and the log has
//! every page that a guest may have written to.

mod support;

use shootdown::{
    CpuId,
    guest::{GuestExit, Vcpu},
    tags::TagEntries,
};
use shootdown_kernel_tests::addr::USER_END;
use shootdown_kernel_tests::arch::percpu::as_cpu;
use shootdown_kernel_tests::errno::Errno;
use shootdown_kernel_tests::mm::frames;
use shootdown_kernel_tests::mm::nested::{FirstWrites, LogRange, NestedFault, SlotRequest};
use shootdown_kernel_tests::mm::{
    Advice, AreaKind, Destination, FaultError, GuestMemory, MemorySpace, PAGE_SIZE, Prot,
};
use shootdown_kernel_tests::platform::SHOOTDOWN;
use shootdown_kernel_tests::witness::{at_spin, at_wait, forget_spin, intrude};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use support::random::Random;
use support::watched::Watched;
use support::*;

const PAGES: usize = 70;
/// Where the guest has the first page.
const GUEST: usize = 0x10_0000;
const SLOT: u32 = 3;

const LOGGED: SlotRequest = SlotRequest {
    id: SLOT,
    guest: GUEST as u64,
    bytes: (PAGES * PAGE_SIZE) as u64,
    user: BASE as u64,
    logs: true,
    is_read_only: false,
};
const UNLOGGED: SlotRequest = SlotRequest {
    logs: false,
    ..LOGGED
};

fn machine(space: &Arc<MemorySpace>, slot: &SlotRequest) -> GuestMemory {
    let memory = GuestMemory::new(space.clone()).unwrap();
    memory.set_slot(slot, false).unwrap();
    memory
}

const fn guest_at(page: usize) -> usize {
    GUEST + page * PAGE_SIZE
}

fn nested(memory: &GuestMemory, page: usize) -> Option<u64> {
    entry_below(memory.engine().root(), guest_at(page))
}

/// The frame that the guest has there, and whether it may write to it.
fn has(memory: &GuestMemory, page: usize) -> Option<(u64, bool)> {
    let entry = nested(memory, page)?;
    Some((entry & 0x000f_ffff_ffff_f000, entry & 2 != 0))
}

fn guest_may_write(memory: &GuestMemory, page: usize) -> bool {
    nested(memory, page).is_some_and(|entry| entry & 2 != 0)
}

/// The guest touches a page; whether it could.
fn touch(memory: &GuestMemory, page: usize, write: bool) -> bool {
    let done = memory.fault(guest_at(page) + 8, write);
    assert_ne!(done, Ok(NestedFault::NoMemory));
    done.is_ok()
}

/// What the guest sees is what the space has, with no more rights.
fn check_inside(space: &MemorySpace, memory: &GuestMemory) {
    for page in 0..PAGES {
        let Some(entry) = nested(memory, page) else {
            continue;
        };
        let own =
            support::entry(space, page).expect("the guest sees a page that the space has lost");
        assert_eq!(entry & ADDRESS, own & ADDRESS, "page {page} is another one");
        assert!(
            own & 2 != 0 || entry & 2 == 0,
            "the guest may write to page {page}"
        );
    }
}

fn read_log(memory: &GuestMemory, clears: bool) -> Result<Vec<u64>, Errno> {
    memory.read_log(SLOT, clears, |bits| Ok(bits.to_vec()))
}

/// Pages with a bit in the log.
fn dirty(memory: &GuestMemory, clears: bool) -> BTreeSet<usize> {
    let log = read_log(memory, clears).unwrap();
    let is_set = |page: &usize| log[page / 64] & 1 << (page % 64) != 0;
    (0..64 * log.len()).filter(is_set).collect()
}

/// Whether what a virtual CPU has cached is dropped as it enters.
fn is_flushed(memory: &GuestMemory, vcpu: &mut Vcpu) -> bool {
    let enter =
        |entry: shootdown::guest::GuestEntry| GuestExit::Ran(entry.entries == TagEntries::Drop);
    // SAFETY: nobody enters anything.
    unsafe { memory.engine().run(&SHOOTDOWN, vcpu, enter) }
}

#[test]
fn pages_are_made_as_if_the_vmm_had_touched_them() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let memory = machine(&space, &UNLOGGED);
    assert_eq!(memory.fault(GUEST - 1, false), Ok(NestedFault::NoMemory));
    assert!(touch(&memory, 5, false));
    assert!(guest_may_write(&memory, 5));
    put(&space, 6, 66);
    assert!(touch(&memory, 6, true));
    check_inside(&space, &memory);
    protect(&space, 5, 1, Prot::READ);
    assert!(!guest_may_write(&memory, 5) && nested(&memory, 5).is_some());
    assert!(!touch(&memory, 5, true) && touch(&memory, 5, false));
    protect(&space, 5, 1, Prot::NONE);
    assert!(nested(&memory, 5).is_none() && !touch(&memory, 5, false));
    assert_eq!(memory.user_address(guest_at(7) + 3), Some(at(7) + 3));
}

#[test]
fn rights_gained_need_no_flush_and_rights_lost_one() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let memory = machine(&space, &LOGGED);
    let vcpu = &mut Vcpu::new(&SHOOTDOWN, memory.engine());
    is_flushed(&memory, vcpu);
    for page in 0..PAGES {
        assert!(touch(&memory, page, false) && !guest_may_write(&memory, page));
        assert!(touch(&memory, page, true) && guest_may_write(&memory, page));
    }
    assert!(!is_flushed(&memory, vcpu));
    assert_eq!(dirty(&memory, false).len(), PAGES);
    assert!(!is_flushed(&memory, vcpu));
    assert_eq!(dirty(&memory, true).len(), PAGES);
    assert!(is_flushed(&memory, vcpu) && !is_flushed(&memory, vcpu));
    assert_eq!(dirty(&memory, true).len(), 0);
    assert!(!is_flushed(&memory, vcpu));
    // Nothing that the guest sees.
    put(&space, 0, 1);
    discard(&space, 0, 1);
    assert!(is_flushed(&memory, vcpu));
    discard(&space, 0, 1);
    assert!(!is_flushed(&memory, vcpu));
}

/// The first write to a clean page is flushed where that is asked for, and only that.
#[test]
fn first_writes_are_flushed_for_those_who_compare() {
    let _turn = Turn::new();
    for chosen in ["flushed", "flushed-one-by-one", "unflushed"] {
        FirstWrites::from_name(chosen).expect("a name").choose();
        let space = mapped(PAGES, AreaKind::Anonymous);
        let memory = machine(&space, &LOGGED);
        let vcpu = &mut Vcpu::new(&SHOOTDOWN, memory.engine());
        is_flushed(&memory, vcpu);
        // What was not there before, and what may be written to already.
        for (write, before) in [(false, false), (true, true), (true, false), (false, false)] {
            assert!(touch(&memory, 1, write));
            let is_due = before && chosen != "unflushed";
            assert_eq!(is_flushed(&memory, vcpu), is_due, "{chosen}");
        }
        assert!(touch(&memory, 2, true));
        assert!(!is_flushed(&memory, vcpu), "{chosen}");
        assert_eq!(FirstWrites::chosen().name(), chosen);
    }
}

/// The reader that made pages read-only before may still be waiting for the flush of that.
#[test]
fn pages_that_nobody_may_write_to_are_flushed_when_they_are_clean() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let memory = machine(&space, &LOGGED);
    let vcpu = &mut Vcpu::new(&SHOOTDOWN, memory.engine());
    assert!(touch(&memory, 1, true));
    protect(&space, 1, 1, Prot::READ);
    is_flushed(&memory, vcpu);
    assert!(!guest_may_write(&memory, 1));
    assert_eq!(dirty(&memory, true), [1].into());
    assert!(is_flushed(&memory, vcpu));
}

#[test]
fn logs_are_cleared_in_whole_words() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let memory = machine(&space, &LOGGED);
    for page in [3, 4, 65] {
        assert!(touch(&memory, page, true));
    }
    let range = |slot, first, pages| LogRange { slot, first, pages };
    let clear = |range, bits: &[u64]| {
        memory.clear_log(range, |to| {
            to.copy_from_slice(bits);
            Ok(())
        })
    };
    assert_eq!(clear(range(SLOT, 0, 64), &[1 << 3 | 1 << 9]), Ok(()));
    assert_eq!(dirty(&memory, false), [4, 65].into());
    assert_eq!(clear(range(SLOT, 64, 6), &[u64::MAX]), Ok(()));
    assert_eq!(dirty(&memory, false), [4].into());
    for (first, pages) in [(1, 64), (0, 63), (64, 7), (128, 0), (u64::MAX, 1)] {
        let refused = clear(range(SLOT, first, pages), &[0]);
        assert_eq!(refused, Err(Errno::EINVAL), "{first}, {pages}");
    }
    assert_eq!(clear(range(0, 0, 64), &[0]), Err(Errno::ENOENT));
    memory.set_slot(&UNLOGGED, false).unwrap();
    assert_eq!(read_log(&memory, true), Err(Errno::ENOENT));
    // A new one, of which all pages are dirty, has as many as the slot.
    memory.set_slot(&LOGGED, true).unwrap();
    assert_eq!(dirty(&memory, false), (0..PAGES).collect());
}

#[test]
fn slots_that_go_give_their_tables_back() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    fill(&space, PAGES);
    let memory = machine(&space, &UNLOGGED);
    let free = frames::free_count();
    (0..PAGES).for_each(|page| assert!(touch(&memory, page, true)));
    assert_eq!(frames::free_count(), free - 3);
    // Another one in the same table.
    let other = SlotRequest {
        id: 1,
        guest: 0,
        bytes: PAGE_SIZE as u64,
        ..UNLOGGED
    };
    let above = SlotRequest {
        id: 2,
        guest: (GUEST + PAGES * PAGE_SIZE) as u64,
        ..other
    };
    let show = |slot: &SlotRequest| {
        memory.set_slot(slot, false).unwrap();
        let done = memory.fault(slot.guest as usize, true);
        assert_eq!(done, Ok(NestedFault::Retry));
    };
    [other, above].iter().for_each(show);
    let gone = |slot| SlotRequest { bytes: 0, ..slot };
    memory.set_slot(&gone(UNLOGGED), false).unwrap();
    assert!((0..PAGES).all(|page| nested(&memory, page).is_none()));
    assert_eq!(frames::free_count(), free - 3);
    memory.set_slot(&gone(other), false).unwrap();
    assert!(nested(&memory, PAGES).is_some(), "that of the slot above");
    assert_eq!(frames::free_count(), free - 3);
    show(&other);
    memory.set_slot(&gone(above), false).unwrap();
    assert_eq!(frames::free_count(), free - 3, "those of the slot below");
    memory.set_slot(&gone(other), false).unwrap();
    assert_eq!(frames::free_count(), free);
}

#[test]
fn slots_do_not_overlap_and_stay_among_user_addresses() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let memory = machine(&space, &UNLOGGED);
    let other = SlotRequest { id: 1, ..UNLOGGED };
    for page in [-69, -1, 0, 1, 69] {
        let guest = UNLOGGED.guest.wrapping_add_signed(page * PAGE_SIZE as i64);
        let refused = memory.set_slot(&SlotRequest { guest, ..other }, false);
        assert_eq!(refused, Err(Errno::EEXIST), "{page} pages on");
    }
    let elsewhere = SlotRequest { guest: 0, ..other };
    let last = (USER_END - PAGES * PAGE_SIZE) as u64;
    for (user, answer) in [
        (last, Ok(())),
        (last + PAGE_SIZE as u64, Err(Errno::EINVAL)),
        (USER_END as u64, Err(Errno::EINVAL)),
        (u64::MAX - 4095, Err(Errno::EINVAL)),
        (BASE as u64 + 8, Err(Errno::EINVAL)),
    ] {
        let slot = SlotRequest { user, ..elsewhere };
        assert_eq!(memory.set_slot(&slot, false), answer, "{user:#x}");
        let gone = SlotRequest { bytes: 0, ..slot };
        assert_eq!(memory.set_slot(&gone, false).is_ok(), answer.is_ok());
    }
}

#[test]
fn guests_write_to_no_slot_that_is_read_only() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let rom = SlotRequest {
        is_read_only: true,
        ..UNLOGGED
    };
    let memory = machine(&space, &rom);
    for _ in 0..2 {
        let refused = memory.fault(guest_at(1), true);
        assert_eq!(refused, Ok(NestedFault::NoMemory));
        assert!(touch(&memory, 1, false));
        assert!(!guest_may_write(&memory, 1));
    }
    let written = memory.write_with(guest_at(1), |_| Ok::<_, ()>(()));
    assert_eq!(written, None);
    assert_eq!(memory.write_now(guest_at(1), |_| Ok::<_, ()>(())), None);
}

#[test]
fn a_log_that_begins_takes_the_right_to_write_away_unless_all_is_dirty() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    for all_dirty in [false, true] {
        let memory = machine(&space, &UNLOGGED);
        let vcpu = &mut Vcpu::new(&SHOOTDOWN, memory.engine());
        assert!(touch(&memory, 1, true));
        is_flushed(&memory, vcpu);
        memory.set_slot(&LOGGED, all_dirty).unwrap();
        assert_eq!(guest_may_write(&memory, 1), all_dirty);
        assert_eq!(is_flushed(&memory, vcpu), !all_dirty);
    }
}

/// As much kernel heap as logs take, whoever asks: a bit a page, for 16 GiB.
#[test]
fn logs_take_no_more_than_there_is_for_them() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let large = SlotRequest {
        guest: 0,
        bytes: 12 << 30,
        ..LOGGED
    };
    let first = machine(&space, &large);
    let second = GuestMemory::new(space.clone()).unwrap();
    let asked = |slot| second.set_slot(slot, false);
    assert_eq!(asked(&large), Err(Errno::ENOMEM));
    let unlogged = SlotRequest {
        logs: false,
        ..large
    };
    assert_eq!(asked(&unlogged), Ok(()));
    assert_eq!(asked(&large), Err(Errno::ENOMEM), "a log that begins");
    first.set_slot(&unlogged, false).unwrap();
    assert_eq!(asked(&large), Ok(()));
}

/// Two machines, and a slot twice: each loses what the space loses.
#[test]
fn every_machine_follows() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let machines = [machine(&space, &UNLOGGED), machine(&space, &LOGGED)];
    let twice = SlotRequest {
        id: 9,
        guest: 1 << 40,
        ..UNLOGGED
    };
    machines[0].set_slot(&twice, false).unwrap();
    assert_eq!(machines[0].fault(1 << 40, true), Ok(NestedFault::Retry));
    for memory in &machines {
        assert!(touch(memory, 0, true) && touch(memory, 1, false));
    }
    unmap(&space, 0, 1);
    assert!(entry_below(machines[0].engine().root(), 1 << 40).is_none());
    assert!(machines.iter().all(|memory| nested(memory, 0).is_none()));
    assert!(machines.iter().all(|memory| nested(memory, 1).is_some()));
}

/// Where there is no memory to note a share on, it is given up in the middle of an operation: guests have lost the page by then.
#[test]
fn guests_lose_pages_before_their_shares_are_given_up() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let memory = Rc::new(machine(&space, &UNLOGGED));
    let watched = Watched::new(&[&space]);
    let child = space.fork().unwrap();
    assert!(touch(&memory, 1, false));
    let hoard = exhaust();
    let (seen, found) = (memory.clone(), Rc::new(Cell::new(None)));
    let answer = found.clone();
    // Not asserted here: a thread that panics leaves the space locked.
    at_wait(move || answer.set(Some(nested(&seen, 1))));
    unmap(&space, 1, 1);
    assert_eq!(found.get(), Some(None), "a page whose share is about to go");
    give_back(hoard);
    drop(watched);
    drop(child);
}

/// What is taken away between any two steps of a nested fault is not shown by it.
#[test]
fn nested_faults_show_nothing_that_is_taken_away_meanwhile() {
    let _turn = Turn::new();
    let read_only = |space: &Arc<MemorySpace>| protect(space, 1, 1, Prot::READ);
    let gone = |space: &Arc<MemorySpace>| discard(space, 1, 1);
    for taken in [read_only as fn(&Arc<MemorySpace>), gone] {
        for moment in 0.. {
            let space = written(PAGES);
            let memory = machine(&space, &LOGGED);
            let other = space.clone();
            at_spin(moment, move || as_cpu(CpuId::new(3), || taken(&other)));
            let _refused = memory.fault(guest_at(1), true);
            if forget_spin() {
                assert!(moment > 3, "there are {moment} moments");
                break;
            }
            check_inside(&space, &memory);
        }
    }
}

/// A slot that goes between any two steps of a nested fault shows nothing afterwards, and has a table no more; one that takes its place shows what is its own.
#[test]
fn nested_faults_show_nothing_in_slots_that_go_meanwhile() {
    let _turn = Turn::new();
    let gone = SlotRequest {
        bytes: 0,
        ..UNLOGGED
    };
    let next = SlotRequest {
        user: at(1) as u64,
        bytes: (2 * PAGE_SIZE) as u64,
        ..UNLOGGED
    };
    for (moment, replaces) in (0..).flat_map(|moment| [(moment, false), (moment, true)]) {
        let space = written(PAGES);
        let memory = Rc::new(machine(&space, &UNLOGGED));
        let (free, other) = (frames::free_count(), memory.clone());
        at_spin(moment, move || {
            as_cpu(CpuId::new(3), || {
                other.set_slot(&gone, false).unwrap();
                let next = replaces.then(|| other.set_slot(&next, false));
                next.into_iter().for_each(Result::unwrap);
            });
        });
        let _answer = memory.fault(guest_at(1), true);
        if forget_spin() {
            assert!(moment > 3, "there are {moment} moments");
            return;
        }
        let shown = nested(&memory, 1).map(|entry| entry & ADDRESS);
        let own = entry(&space, 2).map(|entry| entry & ADDRESS);
        assert!(
            shown.is_none() || replaces && shown == own,
            "moment {moment}"
        );
        assert!(replaces || frames::free_count() == free, "moment {moment}");
    }
}

/// Whoever finds nothing left to take away, while another one waits for CPUs and has not flushed the guest yet, flushes it.
#[test]
fn what_a_guest_has_lost_to_another_who_waits_is_flushed() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let memory = Rc::new(machine(&space, &UNLOGGED));
    let mut vcpu = Vcpu::new(&SHOOTDOWN, memory.engine());
    assert!(touch(&memory, 1, true));
    is_flushed(&memory, &mut vcpu);
    let watched = Watched::new(&[&space]);
    let (late, seen, found) = (space.clone(), memory.clone(), Rc::new(Cell::new(false)));
    let answer = found.clone();
    at_wait(move || {
        discard(&late, 1, 1);
        answer.set(is_flushed(&seen, &mut vcpu));
    });
    discard(&space, 1, 1);
    assert!(found.get(), "the guest can write to the page");
    drop(watched);
}

#[test]
fn nested_faults_without_memory_for_tables_leave_everything_as_it_was() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let memory = machine(&space, &LOGGED);
    for left in 0..=3 {
        let mut hoard = exhaust();
        hoard.drain(..left).for_each(frames::free);
        let answer = memory.fault(guest_at(1), true);
        let expected = match left {
            3 => Ok(NestedFault::Retry),
            _ => Err(FaultError::OutOfMemory),
        };
        assert_eq!(answer, expected, "{left} frames");
        assert_eq!(nested(&memory, 1).is_some(), left == 3);
        assert_eq!(dirty(&memory, false).contains(&1), left == 3);
        give_back(hoard);
    }
}

/// As many machines as there may be, and one that gets the number of another.
#[test]
fn machines_have_numbers_as_long_as_they_live() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let mut machines: Vec<_> =
        std::iter::from_fn(|| GuestMemory::new(space.clone()).ok()).collect();
    assert_eq!(machines.len(), 16);
    drop(machines.remove(3));
    machines.push(GuestMemory::new(space.clone()).unwrap());
    assert!(GuestMemory::new(space.clone()).is_err());
    for memory in &machines {
        memory.set_slot(&UNLOGGED, false).unwrap();
        assert!(touch(memory, 1, true));
    }
    unmap(&space, 1, 1);
    assert!(machines.iter().all(|memory| nested(memory, 1).is_none()));
    drop(machines);
    // Nobody listens: or the space could not be dropped.
    let space = Arc::into_inner(space);
    assert!(space.is_some());
}

/// One flush for all spaces, and each machine of them loses the pages and is flushed.
#[test]
fn machines_of_all_spaces_follow_a_cut() {
    let _turn = Turn::new();
    let file = file_of(PAGES);
    let spaces = [(); 2].map(|()| mapped(PAGES, shown(&file, 0)));
    let machines = spaces.each_ref().map(|space| machine(space, &UNLOGGED));
    let mut vcpus = machines
        .each_ref()
        .map(|memory| Vcpu::new(&SHOOTDOWN, memory.engine()));
    for (memory, vcpu) in machines.iter().zip(&mut vcpus) {
        assert!(touch(memory, 1, true));
        is_flushed(memory, vcpu);
    }
    resize(&file, 1);
    for (memory, vcpu) in machines.iter().zip(&mut vcpus) {
        assert_eq!(nested(memory, 1), None);
        assert!(is_flushed(memory, vcpu));
    }
}

/// A guest on CPU 1, which stays in guest mode until it may leave.
struct Running {
    thread: thread::JoinHandle<()>,
    may_leave: Arc<AtomicBool>,
}

impl Running {
    /// Returns when it is in guest mode.
    fn new(guest: &Arc<GuestMemory>) -> Self {
        let [is_in, may_leave] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (guest, entered, leaves) = (guest.clone(), is_in.clone(), may_leave.clone());
        let stay = move |_| {
            entered.store(true, Relaxed);
            until(&leaves);
            GuestExit::Ran(())
        };
        let thread = thread::spawn(move || {
            let mut vcpu = Vcpu::new(&SHOOTDOWN, guest.engine());
            // SAFETY: nobody enters anything.
            let run = || unsafe { guest.engine().run(&SHOOTDOWN, &mut vcpu, stay) };
            as_cpu(CpuId::new(1), run);
        });
        until(&is_in);
        Self { thread, may_leave }
    }

    fn leave(self) {
        self.may_leave.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

/// Here the guest on another CPU has not left when the wait for it begins.
#[test]
fn frames_are_free_when_the_guest_has_left() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let memory = Arc::new(machine(&space, &UNLOGGED));
    assert!(touch(&memory, 1, true));
    let running = Running::new(&memory);
    let (free, found) = (frames::free_count(), Rc::new(Cell::new(None)));
    let answer = found.clone();
    at_wait(move || {
        answer.set(Some(frames::free_count()));
        running.leave();
    });
    unmap(&space, 1, 1);
    assert_eq!(found.get(), Some(free), "the guest can write to it");
    assert_eq!(frames::free_count(), free + 1);
}

/// Does `before`, and while that waits for a guest that can write to page 1 `after`; whether `after` waits for the guest, too.
fn waits_too(
    slot: &SlotRequest,
    before: fn(&GuestMemory),
    after: fn(&Arc<MemorySpace>) -> Option<Arc<MemorySpace>>,
) -> bool {
    let space = written(PAGES);
    let memory = Arc::new(machine(&space, slot));
    assert!(touch(&memory, 1, true));
    let running = Running::new(&memory);
    let has_waited = Rc::new(Cell::new(false));
    let (waited, other) = (has_waited.clone(), space.clone());
    at_wait(move || {
        let running = Rc::new(Cell::new(Some(running)));
        let guest = running.clone();
        at_wait(move || {
            waited.set(true);
            guest.take().into_iter().for_each(Running::leave);
        });
        let child = after(&other);
        running.take().into_iter().for_each(Running::leave);
        drop(child);
    });
    before(&memory);
    has_waited.get()
}

/// The space has a page that its guest has lost already, but can still write to: the slot was removed, or its log was cleared, and whoever did that
/// waits.
#[test]
fn what_a_guest_is_about_to_lose_is_waited_for() {
    let _turn = Turn::new();
    let discards = |space: &Arc<MemorySpace>| {
        discard(space, 1, 1);
        None
    };
    let forks = |space: &Arc<MemorySpace>| Some(space.fork().unwrap());
    let removes = |memory: &GuestMemory| {
        let gone = SlotRequest {
            bytes: 0,
            ..UNLOGGED
        };
        memory.set_slot(&gone, false).unwrap();
    };
    let clears = |memory: &GuestMemory| assert_eq!(dirty(memory, true), BTreeSet::from([1]));
    for (slot, before, what) in [
        (&LOGGED, clears as fn(&GuestMemory), "a log was cleared"),
        (&UNLOGGED, removes, "a slot was removed"),
    ] {
        let does_wait = waits_too(slot, before, discards);
        assert!(does_wait, "a discard after {what}");
        assert!(waits_too(slot, before, forks), "a fork after {what}");
    }
}

/// Who finds a page clean relies on it, so requests about logs come one after the other, with their flushes.
#[test]
fn a_log_that_another_one_reads_is_waited_for() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let memory = Arc::new(machine(&space, &LOGGED));
    let whole = LogRange {
        slot: SLOT,
        first: 0,
        pages: PAGES as u64,
    };
    type Request = fn(&GuestMemory, LogRange);
    let reads: Request = |memory, _| drop(read_log(memory, true).unwrap());
    let clears: Request = |memory, whole| {
        let all = |bits: &mut [u64]| {
            bits.fill(u64::MAX);
            Ok(())
        };
        memory.clear_log(whole, all).unwrap();
    };
    for first in [reads, clears] {
        assert!(touch(&memory, 1, true));
        let running = Running::new(&memory);
        let (second, found) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
        let (started, early, other) = (second.clone(), found.clone(), memory.clone());
        at_wait(move || {
            let thread = thread::spawn(move || as_cpu(CpuId::new(2), || reads(&other, whole)));
            thread::sleep(PATIENCE);
            early.set(thread.is_finished());
            started.set(Some(thread));
            running.leave();
        });
        first(&memory, whole);
        second.take().unwrap().join().unwrap();
        assert!(!found.get(), "the guest can write to the page");
    }
}

/// A log that could not be taken has lost nothing, and a page that is written to while it is taken is in this log or in the next.
#[test]
fn only_a_log_that_was_taken_is_cleared() {
    let _turn = Turn::new();
    let space = mapped(PAGES, AreaKind::Anonymous);
    let memory = machine(&space, &LOGGED);
    assert!(touch(&memory, 1, true) && touch(&memory, 65, true));
    let refused = memory.read_log(SLOT, true, |_| Err::<(), _>(Errno::EFAULT));
    assert_eq!(refused, Err(Errno::EFAULT));
    assert_eq!(dirty(&memory, false), BTreeSet::from([1, 65]));
    let taken = memory.read_log(SLOT, true, |bits| {
        assert!(touch(&memory, 1, true) && touch(&memory, 2, true));
        Ok(bits.to_vec())
    });
    assert_eq!(taken, Ok(vec![1 << 1, 1 << 1]));
    assert!(!guest_may_write(&memory, 1) && !guest_may_write(&memory, 65));
    assert_eq!(dirty(&memory, true), BTreeSet::from([2]));
}

/// Long enough for a thread that waits for nothing.
const PATIENCE: Duration = Duration::from_millis(50);

const SEEDS: u64 = 60;
const STEPS: usize = 120;

/// Whatever happens to the space, also whenever its lock is free.
#[test]
fn guests_see_what_their_space_has_at_any_time() {
    let _turn = Turn::new();
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let space = mapped(PAGES, AreaKind::Anonymous);
        let memory = Rc::new(machine(&space, &LOGGED));
        // Shows the same, and the guest never uses it.
        let unused = SlotRequest {
            id: 9,
            guest: 1 << 40,
            ..LOGGED
        };
        memory.set_slot(&unused, false).unwrap();
        let watched = Watched::new(&[&space, &space]);
        let (seen_space, seen_memory) = (space.clone(), memory.clone());
        let intruder = intrude(move || check_inside(&seen_space, &seen_memory));
        run(&space, &memory, &mut Random::new(seed));
        drop(intruder);
        watched.watch.settle();
        drop(watched);
    }
}

fn run(space: &Arc<MemorySpace>, memory: &GuestMemory, random: &mut Random) {
    let children = RefCell::new(Vec::new());
    let mut model = BTreeSet::new();
    let mut vcpu = Vcpu::new(&SHOOTDOWN, memory.engine());
    for _ in 0..STEPS {
        is_flushed(memory, &mut vcpu);
        let before: Vec<_> = (0..PAGES).map(|page| has(memory, page)).collect();
        let page = random.below(PAGES);
        let pages = 1 + random.below((PAGES - page).min(5));
        match random.below(12) {
            0..4 => {
                let write = random.below(2) == 0;
                if touch(memory, page, write) && write {
                    model.insert(page);
                }
            }
            4 => drop(space.advise(at(page), pages * PAGE_SIZE, Advice::Discard)),
            5 => unmap(space, page, pages),
            6 => drop(space.map(request(at(page), pages))),
            7 => {
                let prot = *random.pick(&[Prot::READ, Prot::NONE, Prot::READ_WRITE]);
                let _holes = space.protect(at(page), pages * PAGE_SIZE, prot);
            }
            8 => {
                let to = Destination::Fixed(at(random.below(PAGES - pages + 1)));
                let _refused = remap(space, page, (pages, pages), to);
            }
            9 => children.borrow_mut().push(space.fork().unwrap()),
            10 => drop(space.fault(at(page), WRITE)),
            _ => {
                let expected = core::mem::take(&mut model);
                assert_eq!(dirty(memory, true), expected);
            }
        }
        check_inside(space, memory);
        let is_lost = |page: usize| match (before[page], has(memory, page)) {
            (None, _) => false,
            (Some((old, wrote)), Some((new, writes))) => old != new || wrote && !writes,
            (Some(_), None) => true,
        };
        let has_lost = (0..PAGES).any(is_lost);
        assert!(
            !has_lost || is_flushed(memory, &mut vcpu),
            "the guest may use what it has lost"
        );
        let unnoticed =
            (0..PAGES).find(|page| guest_may_write(memory, *page) && !model.contains(page));
        assert_eq!(unnoticed, None, "no log has it");
    }
}
