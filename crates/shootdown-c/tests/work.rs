//! What the platform is asked for on one CPU; and two threads that play CPUs, with everything that waits.

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use shootdown_c::*;
use support::{Flushed, Machine, become_cpu, cpus, flushed};

/// Counts where it is told to.
unsafe extern "C" fn hit(count: *mut c_void, _: u32) {
    // SAFETY: every test gives a count that lives as long.
    let count = unsafe { &*count.cast::<AtomicU64>() };
    count.fetch_add(1, Ordering::Relaxed);
}

/// As C passes it.
fn data(count: &AtomicU64) -> *mut c_void {
    std::ptr::from_ref(count).cast_mut().cast()
}

#[test]
fn flushes_arrive_as_they_were_asked_for() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    assert_eq!(flushed(), Some(Flushed::All), "as the CPU came online");
    let flush = |range: Range, flags| {
        told!(
            SHOOTDOWN_OK,
            shootdown_flush_kernel(engine, &range, 1, flags)
        );
        flushed()
    };
    let range = |count, page_shift| Range {
        start: 0x4000_0123,
        count,
        page_shift,
    };
    assert_eq!(
        flush(range(2, 12), 0),
        Some(Flushed::Pages(0x4000_0000, 2, 12, 0))
    );
    assert_eq!(
        flush(range(1, 21), SHOOTDOWN_FREED_TABLES),
        Some(Flushed::Pages(0x4000_0000, 1, 21, 1))
    );
    // One CPU has nobody to wait for: strictness changes nothing of its own flush.
    assert_eq!(
        flush(range(2, 12), SHOOTDOWN_STRICT),
        Some(Flushed::Pages(0x4000_0000, 2, 12, 0))
    );
    assert_eq!(
        flush(range(1, 21), SHOOTDOWN_STRICT | SHOOTDOWN_FREED_TABLES),
        Some(Flushed::Pages(0x4000_0000, 1, 21, 1))
    );
    assert_eq!(flush(range(0, 12), 0), None);
    for many in [34, SHOOTDOWN_ALL_PAGES] {
        assert_eq!(flush(range(many, 12), 0), Some(Flushed::All));
    }
}

#[test]
fn only_who_has_a_space_loaded_flushes_it() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let range = |count| Range {
        start: 0x4000_0123,
        count,
        page_shift: 12,
    };
    flushed();
    let mut space = SpaceStorage::ZERO;
    told!(
        SHOOTDOWN_OK,
        shootdown_space_init(engine, &mut space, 0x1000)
    );
    told!(
        SHOOTDOWN_OK,
        shootdown_flush(engine, &mut space, &range(1), 1, 0)
    );
    assert_eq!(flushed(), None, "no CPU has it loaded");
    told!(SHOOTDOWN_OK, shootdown_switch_to(engine, &mut space));
    told!(
        SHOOTDOWN_OK,
        shootdown_flush(engine, &mut space, &range(1), 1, 0)
    );
    assert_eq!(flushed(), Some(Flushed::Pages(0x4000_0000, 1, 12, 0)));
    told!(
        SHOOTDOWN_OK,
        shootdown_flush(engine, &mut space, &range(99), 1, 0)
    );
    assert_eq!(flushed(), Some(Flushed::Space));
}

/// What a called function finds that calls.
unsafe extern "C" fn calls_others(engine: *mut c_void, _: u32) {
    let engine = engine.cast();
    let mut ticket = TicketStorage::ZERO;
    told!(
        SHOOTDOWN_IN_FUNCTION,
        shootdown_call_all(engine, Some(hit), null_mut(), null_mut())
    );
    told!(
        SHOOTDOWN_IN_FUNCTION,
        shootdown_submit_call(engine, &cpus(1), Some(hit), null_mut(), &mut ticket)
    );
    told!(
        SHOOTDOWN_OK,
        shootdown_flush_kernel(engine, null(), 0, SHOOTDOWN_FREED_TABLES)
    );
}

#[test]
fn two_cpus_call_each_other() {
    let machine = Machine::with_cpus(2);
    let engine = machine.engine();
    let count = AtomicU64::new(0);
    machine.beside(1, || {
        let hits = data(&count);
        let mut ran = CpuSet::default();
        told!(
            SHOOTDOWN_OK,
            shootdown_call_all(engine, Some(hit), hits, &mut ran)
        );
        assert_eq!((ran, count.load(Ordering::Relaxed)), (cpus(0b11), 2));
        told!(
            SHOOTDOWN_OK,
            shootdown_call_many(engine, &cpus(0b110), Some(hit), hits, &mut ran)
        );
        assert_eq!((ran, count.load(Ordering::Relaxed)), (cpus(0b10), 3));
        told!(
            SHOOTDOWN_OK,
            shootdown_call_one(engine, 1, Some(calls_others), engine.cast())
        );
        let mut ticket = TicketStorage::ZERO;
        let submit = shootdown_submit_call;
        told!(
            SHOOTDOWN_OK,
            submit(engine, &cpus(0b10), Some(hit), hits, &mut ticket)
        );
        told!(SHOOTDOWN_BUSY, shootdown_ticket_give_up(&mut ticket));
        told!(SHOOTDOWN_OK, shootdown_ticket_wait(&mut ticket));
        assert_eq!(count.load(Ordering::Relaxed), 4);
    });
}

/// Its function runs, or it is given up and never does.
#[test]
fn a_call_is_given_up_or_runs() {
    let machine = Machine::with_cpus(2);
    let engine = machine.engine();
    let count = AtomicU64::new(0);
    let submit = |target, ticket: &mut TicketStorage| {
        // SAFETY: 1. they lead there; the count outlives the machine's work.
        unsafe { shootdown_try_submit_call(engine, target, Some(hit), data(&count), ticket) }
    };
    let mut ticket = TicketStorage::ZERO;
    assert_eq!(submit(0, &mut ticket), SHOOTDOWN_INVALID);
    assert_eq!(submit(1, &mut ticket), SHOOTDOWN_NOT_ONLINE);
    machine.beside(1, || {
        let mut runs = 0;
        for _ in 0..100 {
            assert_eq!(submit(1, &mut ticket), SHOOTDOWN_OK);
            assert_eq!(submit(1, &mut ticket), SHOOTDOWN_ALREADY);
            // SAFETY: 1. it is a ticket.
            let given_up = unsafe { shootdown_ticket_give_up(&mut ticket) };
            if given_up != SHOOTDOWN_OK {
                assert_eq!(given_up, SHOOTDOWN_BUSY);
                told!(SHOOTDOWN_OK, shootdown_ticket_wait(&mut ticket));
                runs += 1;
            }
            assert_eq!(count.load(Ordering::Relaxed), runs);
        }
    });
}

#[test]
fn what_is_posted_runs_in_the_end() {
    let machine = Machine::with_cpus(2);
    let engine = machine.engine();
    let count = AtomicU64::new(0);
    let node: &'static mut NodeStorage = Box::leak(Box::new(NodeStorage::ZERO));
    machine.beside(1, || {
        let hits = data(&count);
        let mut sent = CpuSet::default();
        told!(
            SHOOTDOWN_NOT_INITIALISED,
            shootdown_post_node(engine, 1, node)
        );
        told!(
            SHOOTDOWN_OK,
            shootdown_node_init(engine, node, Some(hit), hits)
        );
        told!(
            SHOOTDOWN_ALREADY,
            shootdown_node_init(engine, node, Some(hit), hits)
        );
        told!(SHOOTDOWN_OK, shootdown_post_node(engine, 1, node));
        told!(
            SHOOTDOWN_OK,
            shootdown_post(engine, &cpus(0b10), Some(hit), hits, &mut sent)
        );
        assert_eq!(sent, cpus(0b10));
        while count.load(Ordering::Relaxed) < 2 {
            std::hint::spin_loop();
        }
        let mut is_posted = true;
        told!(SHOOTDOWN_OK, shootdown_node_is_posted(node, &mut is_posted));
        assert!(!is_posted);
    });
}

#[test]
fn a_ticket_waits_for_the_other_cpu() {
    let machine = Machine::with_cpus(2);
    let engine = machine.engine();
    machine.beside(1, || {
        let mut ticket = TicketStorage::ZERO;
        let ranges = [12, 21, 30].map(|page_shift| Range {
            start: 1 << 30,
            count: 2,
            page_shift,
        });
        let submit = shootdown_submit_flush_kernel;
        told!(
            SHOOTDOWN_OK,
            submit(
                engine,
                ranges.as_ptr(),
                3,
                SHOOTDOWN_FREED_TABLES,
                &mut ticket
            )
        );
        told!(
            SHOOTDOWN_ALREADY,
            submit(engine, ranges.as_ptr(), 3, 0, &mut ticket)
        );
        told!(SHOOTDOWN_OK, shootdown_ticket_drop(&mut ticket));
        let mut is_done = false;
        told!(
            SHOOTDOWN_OK,
            shootdown_ticket_is_done(&ticket, &mut is_done)
        );
        assert!(is_done, "an empty ticket is done");
        let mut value = 0;
        told!(
            SHOOTDOWN_OK,
            shootdown_stat(engine, 1, c"remote_flushes".as_ptr(), &mut value)
        );
        assert_eq!(value, 1);
    });
}

/// One thread plays both CPUs.
#[test]
fn freed_tables_wait_for_a_walk() {
    let machine = Machine::with_cpus(2);
    let engine = machine.engine();
    let mut space = SpaceStorage::ZERO;
    let mut ticket = TicketStorage::ZERO;
    let mut walk = WalkStorage::ZERO;
    told!(
        SHOOTDOWN_OK,
        shootdown_space_init(engine, &mut space, 0x1000)
    );
    told!(SHOOTDOWN_OK, shootdown_switch_to(engine, &mut space));
    told!(
        SHOOTDOWN_OK,
        shootdown_walk_begin(engine, &mut space, &mut walk)
    );
    told!(
        SHOOTDOWN_ALREADY,
        shootdown_walk_begin(engine, &mut space, &mut walk)
    );
    become_cpu(1);
    let range = Range {
        start: 0x4000_0000,
        count: 1,
        page_shift: 12,
    };
    told!(
        SHOOTDOWN_OK,
        shootdown_submit_flush(
            engine,
            &mut space,
            &range,
            1,
            SHOOTDOWN_FREED_TABLES,
            &mut ticket
        )
    );
    told!(SHOOTDOWN_INVALID, shootdown_walk_end(&mut walk));
    become_cpu(0);
    for ends in [false, true] {
        if ends {
            told!(SHOOTDOWN_OK, shootdown_walk_end(&mut walk));
        } else {
            told!(SHOOTDOWN_OK, shootdown_poll(engine));
        }
        let mut is_done = !ends;
        told!(
            SHOOTDOWN_OK,
            shootdown_ticket_is_done(&ticket, &mut is_done)
        );
        assert_eq!(is_done, ends);
    }
    told!(SHOOTDOWN_NOT_INITIALISED, shootdown_walk_end(&mut walk));
    told!(SHOOTDOWN_OK, shootdown_sync_walks(engine, &mut space));
    become_cpu(1);
    told!(SHOOTDOWN_OK, shootdown_ticket_drop(&mut ticket));
    become_cpu(0);
    told!(SHOOTDOWN_OK, shootdown_switch_away(engine, 0x2000));
    told!(SHOOTDOWN_OK, shootdown_space_deinit(engine, &mut space));
}

thread_local! {
    static SYNCHRONISED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

unsafe extern "C" fn synchronise(_: *mut c_void) {
    SYNCHRONISED.set(SYNCHRONISED.get() + 1);
}

unsafe extern "C" fn count(data: *mut c_void, _: u32) {
    // SAFETY: the test lends a number.
    let counted = unsafe { &mut *data.cast::<u32>() };
    *counted += 1;
}

unsafe extern "C" fn count_step(data: *mut c_void, cpu: u32, _: u32) {
    // SAFETY: as above.
    unsafe { count(data, cpu) };
}

/// One thread plays both CPUs: each polls where it is waited for.
#[test]
fn barriers_and_functions_that_are_asked_for() {
    let machine = Machine::with(2, |table| table.synchronise_here = Some(synchronise));
    let engine = machine.engine();
    let mut space = SpaceStorage::ZERO;
    told!(
        SHOOTDOWN_OK,
        shootdown_space_init(engine, &mut space, 0x1000)
    );
    become_cpu(1);
    told!(SHOOTDOWN_OK, shootdown_online(engine));
    told!(SHOOTDOWN_OK, shootdown_switch_to(engine, &mut space));
    let done_by_poll = |submit: &dyn Fn(*mut TicketStorage) -> Status| {
        let mut ticket = TicketStorage::ZERO;
        become_cpu(0);
        assert_eq!(submit(&mut ticket), SHOOTDOWN_OK);
        let mut states = [true; 2];
        for (polls, is_done) in [false, true].into_iter().zip(&mut states) {
            if polls {
                become_cpu(1);
                told!(SHOOTDOWN_OK, shootdown_poll(engine));
            }
            told!(SHOOTDOWN_OK, shootdown_ticket_is_done(&ticket, is_done));
        }
        assert_eq!(states, [false, true]);
        told!(SHOOTDOWN_OK, shootdown_ticket_drop(&mut ticket));
    };
    let address = &raw mut space;
    done_by_poll(&|ticket| call!(shootdown_barrier(engine, address, ticket)));
    assert_eq!(SYNCHRONISED.get(), 0);
    done_by_poll(&|ticket| call!(shootdown_serialise(engine, core::ptr::null(), ticket)));
    assert_eq!(SYNCHRONISED.get(), 2);
    become_cpu(0);
    let mut counted = 0u32;
    let data = (&raw mut counted).cast();
    told!(SHOOTDOWN_OK, shootdown_ask(engine, 0, Some(count), data));
    told!(
        SHOOTDOWN_NOT_ONLINE,
        shootdown_ask(engine, 3, Some(count), data)
    );
    told!(SHOOTDOWN_NULL, shootdown_ask(engine, 0, None, data));
    assert_eq!(counted, 1);
    let mut absent = CpuSet::default();
    let mut meet = |targets: u64, steps, function: StepFunction| {
        let targets = cpus(targets);
        call!(shootdown_rendezvous(
            engine,
            &targets,
            0,
            steps,
            SHOOTDOWN_WITHOUT_FLUSHES,
            function,
            data,
            &mut absent
        ))
    };
    assert_eq!(meet(1, 3, Some(count_step)), SHOOTDOWN_OK);
    assert_eq!(counted, 4);
    assert_eq!(meet(1, 65, Some(count_step)), SHOOTDOWN_INVALID);
    assert_eq!(meet(1, 1, None), SHOOTDOWN_NULL);
    assert_eq!(meet(3, 1, Some(count_step)), SHOOTDOWN_FAILED);
    assert_eq!((absent.words[0], counted), (2, 4));
    told!(SHOOTDOWN_BUSY, shootdown_arrive(engine));
    let mut unserved = Unserved::default();
    let mut declare = |words: u64, flags| {
        let mut cpus = CpuSet::default();
        cpus.words[0] = words;
        call!(shootdown_declare_dead(engine, &cpus, flags, &mut unserved))
    };
    assert_eq!(declare(1, 0), SHOOTDOWN_INVALID, "this CPU");
    assert_eq!(declare(2, 2), SHOOTDOWN_INVALID);
    assert_eq!(declare(2, SHOOTDOWN_LOST), SHOOTDOWN_OK);
    assert_eq!(declare(2, 0), SHOOTDOWN_OK);
    assert_eq!(unserved, Unserved::default());
    told!(SHOOTDOWN_OK, shootdown_is_settled(engine, 1));
    told!(SHOOTDOWN_BUSY, shootdown_leave_quiet(engine));
    told!(SHOOTDOWN_OK, shootdown_enter_quiet(engine));
    told!(SHOOTDOWN_OK, shootdown_leave_quiet(engine));
    let without = Machine::with_cpus(1);
    let null = core::ptr::null_mut();
    told!(
        SHOOTDOWN_INVALID,
        shootdown_serialise(without.engine(), null, null.cast())
    );
}

/// What a device was told, and what it answers.
#[derive(Default)]
struct Device {
    told: std::cell::RefCell<Vec<(usize, usize, u32, u64)>>,
    answers: std::cell::RefCell<Vec<i32>>,
}

thread_local! {
    static DEVICE: Device = Device::default();
}

unsafe extern "C" fn begin_secondary(
    _: *mut c_void,
    listener: *mut c_void,
    change: *const Change,
    before: u64,
) -> u64 {
    // SAFETY: as the header says.
    let change = unsafe { *change };
    assert_eq!(change.count, 1);
    // SAFETY: as the header says.
    let range = unsafe { *change.ranges };
    DEVICE.with(|device| {
        let told = (range.start, range.count, change.flags, before);
        device.told.borrow_mut().push(told);
    });
    before * 10 + listener.expose_provenance() as u64
}

unsafe extern "C" fn finish_secondary(_: *mut c_void, token: u64) -> i32 {
    assert!(token != 0);
    DEVICE.with(|device| device.answers.borrow_mut().pop().unwrap_or(SHOOTDOWN_OK))
}

unsafe extern "C" fn release_secondary(_: *mut c_void, _: *mut c_void) -> i32 {
    DEVICE.with(|device| device.answers.borrow_mut().pop().unwrap_or(SHOOTDOWN_OK))
}

fn with_device(table: &mut Platform) {
    table.begin_secondary = Some(begin_secondary);
    table.finish_secondary = Some(finish_secondary);
    table.release_secondary = Some(release_secondary);
}

fn will_answer(answers: &[i32]) {
    DEVICE.with(|device| *device.answers.borrow_mut() = answers.to_vec());
}

fn was_told() -> Vec<(usize, usize, u32, u64)> {
    DEVICE.with(|device| device.told.take())
}

#[test]
fn a_listener_is_told_and_may_fail() {
    let machine = Machine::with(1, with_device);
    let engine = machine.engine();
    let mut space = SpaceStorage::ZERO;
    told!(
        SHOOTDOWN_OK,
        shootdown_space_init(engine, &mut space, 0x1000)
    );
    let listener = std::ptr::without_provenance_mut(7);
    told!(
        SHOOTDOWN_NULL,
        shootdown_listen(engine, &mut space, null_mut())
    );
    told!(SHOOTDOWN_OK, shootdown_listen(engine, &mut space, listener));
    told!(
        SHOOTDOWN_ALREADY,
        shootdown_listen(engine, &mut space, listener)
    );
    told!(SHOOTDOWN_BUSY, shootdown_space_deinit(engine, &mut space));
    let range = Range {
        start: 0x4000_0000,
        count: 3,
        page_shift: 12,
    };
    let freed = SHOOTDOWN_FREED_TABLES;
    will_answer(&[SHOOTDOWN_OK, SHOOTDOWN_BUSY]);
    told!(
        SHOOTDOWN_OK,
        shootdown_flush(engine, &mut space, &range, 1, freed)
    );
    assert_eq!(was_told(), [(0x4000_0000, 3, SHOOTDOWN_FREED_TABLES, 0)]);
    will_answer(&[SHOOTDOWN_FAILED]);
    told!(
        SHOOTDOWN_FAILED,
        shootdown_flush(engine, &mut space, &range, 1, 0)
    );

    // A ticket stays, and says no until the device answers.
    let mut ticket = TicketStorage::ZERO;
    will_answer(&[SHOOTDOWN_OK, -1, SHOOTDOWN_FAILED]);
    told!(
        SHOOTDOWN_OK,
        shootdown_submit_flush(engine, &mut space, &range, 1, 0, &mut ticket)
    );
    told!(SHOOTDOWN_INVALID, shootdown_ticket_give_up(&mut ticket));
    told!(SHOOTDOWN_FAILED, shootdown_ticket_wait(&mut ticket));
    let mut is_done = true;
    told!(
        SHOOTDOWN_OK,
        shootdown_ticket_is_done(&ticket, &mut is_done)
    );
    assert!(!is_done);
    told!(SHOOTDOWN_FAILED, shootdown_ticket_drop(&mut ticket));
    told!(SHOOTDOWN_OK, shootdown_ticket_wait(&mut ticket));

    // One that is given up is empty.
    will_answer(&[SHOOTDOWN_FAILED]);
    told!(
        SHOOTDOWN_OK,
        shootdown_submit_flush(engine, &mut space, &range, 1, 0, &mut ticket)
    );
    told!(SHOOTDOWN_FAILED, shootdown_ticket_wait(&mut ticket));
    told!(SHOOTDOWN_OK, shootdown_ticket_give_up(&mut ticket));
    told!(
        SHOOTDOWN_NOT_INITIALISED,
        shootdown_ticket_give_up(&mut ticket)
    );

    will_answer(&[SHOOTDOWN_FAILED]);
    told!(SHOOTDOWN_FAILED, shootdown_release(engine, &mut space));
    told!(SHOOTDOWN_OK, shootdown_release(engine, &mut space));
    was_told();
    told!(
        SHOOTDOWN_OK,
        shootdown_flush(engine, &mut space, &range, 1, freed)
    );
    assert!(was_told().is_empty());
    told!(SHOOTDOWN_OK, shootdown_space_deinit(engine, &mut space));

    // The kernel's part.
    told!(SHOOTDOWN_OK, shootdown_listen(engine, null_mut(), listener));
    told!(
        SHOOTDOWN_OK,
        shootdown_flush_kernel(engine, null(), 0, freed)
    );
    assert_eq!(
        was_told(),
        [(0, SHOOTDOWN_ALL_PAGES, SHOOTDOWN_FREED_TABLES, 0)]
    );
    told!(SHOOTDOWN_OK, shootdown_unlisten(engine, null_mut()));
}

#[test]
fn nobody_listens_where_the_platform_cannot_tell() {
    let machine = Machine::with_cpus(1);
    let listener = std::ptr::without_provenance_mut(7);
    told!(
        SHOOTDOWN_INVALID,
        shootdown_listen(machine.engine(), null_mut(), listener)
    );
}

/// One flush for two spaces, which another thread waits for.
#[test]
fn a_reclaim_is_one_request_and_may_be_handed_over() {
    let machine = Machine::with(2, with_device);
    let engine = machine.engine();
    let mut spaces = [const { SpaceStorage::ZERO }; 2];
    for (space, root) in spaces.iter_mut().zip([0x1000, 0x2000]) {
        told!(SHOOTDOWN_OK, shootdown_space_init(engine, space, root));
        let listener = std::ptr::without_provenance_mut(root as usize >> 12);
        told!(SHOOTDOWN_OK, shootdown_listen(engine, space, listener));
    }
    told!(SHOOTDOWN_OK, shootdown_switch_to(engine, &mut spaces[0]));
    machine.beside(1, || {
        let mut reclaim = ReclaimStorage::ZERO;
        let mut ticket = TicketStorage::ZERO;
        told!(
            SHOOTDOWN_NOT_INITIALISED,
            shootdown_reclaim_submit(&mut reclaim, &mut ticket)
        );
        for space in &mut spaces {
            told!(
                SHOOTDOWN_OK,
                shootdown_reclaim_add(engine, &mut reclaim, space)
            );
        }
        let told = was_told();
        assert_eq!(told.iter().map(|told| told.3).collect::<Vec<_>>(), [0, 1]);
        flushed();
        told!(
            SHOOTDOWN_OK,
            shootdown_reclaim_submit(&mut reclaim, &mut ticket)
        );
        assert_eq!(flushed(), Some(Flushed::Space));
        told!(SHOOTDOWN_OK, shootdown_ticket_hand_over(&mut ticket));
        told!(SHOOTDOWN_OK, shootdown_ticket_hand_over(&mut ticket));
        told!(SHOOTDOWN_OK, shootdown_ticket_wait(&mut ticket));
        told!(
            SHOOTDOWN_NOT_INITIALISED,
            shootdown_ticket_hand_over(&mut ticket)
        );
    });
    told!(SHOOTDOWN_OK, shootdown_switch_away(engine, 0x3000));
    for space in &mut spaces {
        told!(SHOOTDOWN_OK, shootdown_release(engine, space));
        told!(SHOOTDOWN_OK, shootdown_space_deinit(engine, space));
    }
}

#[test]
fn a_strict_flush_is_not_acknowledged_early() {
    let machine = Machine::with_cpus(2);
    let engine = machine.engine();
    machine.beside(1, || {
        let mut space = SpaceStorage::ZERO;
        let root = 0x1000;
        told!(SHOOTDOWN_OK, shootdown_space_init(engine, &mut space, root));
        // Nobody interrupts CPU 1 while this thread plays it.
        become_cpu(1);
        told!(SHOOTDOWN_OK, shootdown_switch_to(engine, &mut space));
        become_cpu(0);
        let range = Range {
            start: 0x4000_0000,
            count: 1,
            page_shift: 12,
        };
        for flags in [0, SHOOTDOWN_STRICT] {
            told!(
                SHOOTDOWN_OK,
                shootdown_flush(engine, &mut space, &range, 1, flags)
            );
            // CPU 1 counts after its acknowledgement and before it runs a function that it is called for later.
            let count = AtomicU64::new(0);
            told!(
                SHOOTDOWN_OK,
                shootdown_call_one(engine, 1, Some(hit), data(&count))
            );
            let mut early = 0;
            told!(
                SHOOTDOWN_OK,
                shootdown_stat(engine, 1, c"early_acks".as_ptr(), &mut early)
            );
            assert_eq!(early, 1, "that of the first");
        }
        become_cpu(1);
        told!(SHOOTDOWN_OK, shootdown_switch_away(engine, 0x2000));
        become_cpu(0);
        told!(SHOOTDOWN_OK, shootdown_space_deinit(engine, &mut space));
    });
}
