//! What C may get wrong and is told, on one CPU.

#[macro_use]
mod support;

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use shootdown_c::*;
use support::Machine;

unsafe extern "C" fn hit(_: *mut c_void, _: u32) {}

#[test]
fn null_pointers_are_told() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let table = support::table();
    told!(
        SHOOTDOWN_NULL,
        shootdown_init(null_mut(), SHOOTDOWN_ENGINE_SIZE, &table)
    );
    let fresh: *mut EngineStorage = Box::leak(Box::new(EngineStorage::ZERO));
    told!(
        SHOOTDOWN_NULL,
        shootdown_init(fresh, SHOOTDOWN_ENGINE_SIZE, null())
    );
    let mut holed = table;
    holed.send_ipi = None;
    told!(
        SHOOTDOWN_NULL,
        shootdown_init(fresh, SHOOTDOWN_ENGINE_SIZE, &holed)
    );
    told!(
        SHOOTDOWN_NULL,
        shootdown_call_one(engine, 0, None, null_mut())
    );
    told!(
        SHOOTDOWN_NULL,
        shootdown_call_many(engine, null(), Some(hit), null_mut(), null_mut())
    );
    told!(
        SHOOTDOWN_NULL,
        shootdown_submit_flush_kernel(engine, null(), 0, 0, null_mut())
    );
    told!(SHOOTDOWN_NULL, shootdown_switch_to(engine, null_mut()));
    told!(SHOOTDOWN_NULL, shootdown_ticket_drop(null_mut()));
    told!(SHOOTDOWN_NULL, shootdown_set_policy(engine, null()));
    told!(SHOOTDOWN_NULL, shootdown_poll(null_mut()));
    told!(SHOOTDOWN_NULL, shootdown_look(null_mut()));
    let odd = engine.cast::<u8>().wrapping_add(8).cast::<EngineStorage>();
    told!(SHOOTDOWN_INVALID, shootdown_poll(odd));
}

#[test]
fn what_was_done_before_or_not_yet_is_told() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let table = support::table();
    told!(
        SHOOTDOWN_ALREADY,
        shootdown_init(engine, SHOOTDOWN_ENGINE_SIZE, &table)
    );
    told!(
        SHOOTDOWN_INVALID,
        shootdown_init(engine, SHOOTDOWN_ENGINE_SIZE + 1, &table)
    );
    let fresh: *mut EngineStorage = Box::leak(Box::new(EngineStorage::ZERO));
    told!(SHOOTDOWN_NOT_INITIALISED, shootdown_online(fresh));
    told!(SHOOTDOWN_ALREADY, shootdown_online(engine));
    let memory: *mut MemoryStorage = Box::leak(Box::new(MemoryStorage::ZERO));
    told!(SHOOTDOWN_ALREADY, shootdown_attach(engine, 0, memory));
    told!(
        SHOOTDOWN_UNKNOWN_CPU,
        shootdown_attach(engine, SHOOTDOWN_MAX_CPUS as u32, memory)
    );
    told!(SHOOTDOWN_OK, shootdown_attach(engine, 1, memory));
    told!(SHOOTDOWN_ALREADY, shootdown_attach(engine, 2, memory));
    // Its place is free still.
    let another: *mut MemoryStorage = Box::leak(Box::new(MemoryStorage::ZERO));
    told!(SHOOTDOWN_OK, shootdown_attach(engine, 2, another));
    told!(
        SHOOTDOWN_NOT_ONLINE,
        shootdown_call_one(engine, 1, Some(hit), null_mut())
    );
    told!(
        SHOOTDOWN_UNKNOWN_CPU,
        shootdown_call_one(engine, 9999, Some(hit), null_mut())
    );
}

/// What a function that runs while its CPU leaves tries to do, and what it is told.
struct Attempt {
    engine: *mut EngineStorage,
    status: Cell<Option<Status>>,
}

unsafe extern "C" fn come_online(data: *mut c_void, _: u32) {
    // SAFETY: the test's, which waits for it.
    let attempt = unsafe { &*data.cast::<Attempt>() };
    attempt
        .status
        .set(Some(call!(shootdown_online(attempt.engine))));
}

#[test]
fn a_function_that_runs_while_its_cpu_leaves_cannot_bring_it_back() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let attempt = Attempt {
        engine,
        status: Cell::new(None),
    };
    let node: *mut NodeStorage = Box::leak(Box::new(NodeStorage::ZERO));
    let data = (&raw const attempt).cast_mut().cast();
    told!(
        SHOOTDOWN_OK,
        shootdown_node_init(engine, node, Some(come_online), data)
    );
    told!(SHOOTDOWN_OK, shootdown_post_node(engine, 0, node));
    told!(SHOOTDOWN_OK, shootdown_offline(engine));
    assert_eq!(attempt.status.get(), Some(SHOOTDOWN_IN_FUNCTION));
    told!(SHOOTDOWN_NOT_ONLINE, shootdown_offline(engine));
}

#[test]
fn tickets_hold_one_thing_at_a_time() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let mut ticket = TicketStorage::ZERO;
    told!(
        SHOOTDOWN_NOT_INITIALISED,
        shootdown_ticket_wait(&mut ticket)
    );
    told!(SHOOTDOWN_OK, shootdown_ticket_drop(&mut ticket));
    told!(SHOOTDOWN_OK, shootdown_kick(engine, null(), &mut ticket));
    told!(
        SHOOTDOWN_ALREADY,
        shootdown_kick(engine, null(), &mut ticket)
    );
    told!(SHOOTDOWN_OK, shootdown_ticket_wait(&mut ticket));
}

#[test]
fn a_cpu_without_memory_is_told() {
    let machine = Machine::with_cpus(1);
    support::become_cpu(7);
    let engine = machine.engine();
    told!(SHOOTDOWN_NO_MEMORY, shootdown_online(engine));
    told!(SHOOTDOWN_OK, shootdown_poll(engine));
    told!(SHOOTDOWN_OK, shootdown_look(engine));
    told!(SHOOTDOWN_NO_MEMORY, shootdown_handle_ipi(engine));
    told!(
        SHOOTDOWN_NO_MEMORY,
        shootdown_call_all(engine, Some(hit), null_mut(), null_mut())
    );
    told!(
        SHOOTDOWN_NO_MEMORY,
        shootdown_flush_kernel(engine, null(), 0, 0)
    );
}

#[test]
fn spaces_are_left_before_they_end() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let mut space = SpaceStorage::ZERO;
    told!(
        SHOOTDOWN_NOT_INITIALISED,
        shootdown_switch_to(engine, &mut space)
    );
    told!(
        SHOOTDOWN_OK,
        shootdown_space_init(engine, &mut space, 0x1000)
    );
    told!(
        SHOOTDOWN_ALREADY,
        shootdown_space_init(engine, &mut space, 0x1000)
    );
    told!(SHOOTDOWN_NOT_LOADED, shootdown_switch_away(engine, 0x2000));
    told!(SHOOTDOWN_OK, shootdown_switch_to(engine, &mut space));
    told!(SHOOTDOWN_LOADED, shootdown_space_deinit(engine, &mut space));
    told!(SHOOTDOWN_LOADED, shootdown_offline(engine));
    let policy = c"before";
    told!(SHOOTDOWN_OK, shootdown_set_policy(engine, policy.as_ptr()));
    // Under this policy the CPU leaves the space at once, but has not said so.
    told!(SHOOTDOWN_OK, shootdown_enter_lazy(engine, 0x2000));
    told!(SHOOTDOWN_LOADED, shootdown_space_deinit(engine, &mut space));
    told!(SHOOTDOWN_OK, shootdown_switch_away(engine, 0x2000));
    let other = Machine::with_cpus(1);
    told!(
        SHOOTDOWN_OTHER_ENGINE,
        shootdown_switch_to(other.engine(), &mut space)
    );
    told!(SHOOTDOWN_OK, shootdown_space_deinit(engine, &mut space));
    told!(SHOOTDOWN_OK, shootdown_offline(engine));
    told!(SHOOTDOWN_NOT_ONLINE, shootdown_offline(engine));
}

#[test]
fn odd_arguments_are_told() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let range = |page_shift| Range {
        start: 0x1000,
        count: 1,
        page_shift,
    };
    told!(
        SHOOTDOWN_OK,
        shootdown_flush_kernel(engine, &range(12), 1, 0)
    );
    for (shift, flags) in [(11, 0), (49, 0), (u32::MAX, 0), (12, 4)] {
        told!(
            SHOOTDOWN_INVALID,
            shootdown_flush_kernel(engine, &range(shift), 1, flags)
        );
    }
    told!(
        SHOOTDOWN_INVALID,
        shootdown_set_policy(engine, c"fastest".as_ptr())
    );
}

#[test]
fn unknown_names_are_told() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let everything = SHOOTDOWN_FREED_TABLES;
    told!(
        SHOOTDOWN_OK,
        shootdown_flush_kernel(engine, null(), 0, everything)
    );
    let mut value = 0;
    let stat = |cpu, name: &CStr, value: &mut u64| {
        call!(shootdown_stat(engine, cpu, name.as_ptr(), value))
    };
    assert_eq!(
        stat(SHOOTDOWN_ALL_CPUS, c"nothing", &mut value),
        SHOOTDOWN_INVALID
    );
    assert_eq!(
        stat(SHOOTDOWN_MAX_CPUS as u32, c"ipis_sent", &mut value),
        SHOOTDOWN_UNKNOWN_CPU
    );
    assert_eq!(stat(0, c"local_flushes", &mut value), SHOOTDOWN_OK);
    assert_eq!(value, 1);
    let mut name = [0; 64];
    told!(
        SHOOTDOWN_INVALID,
        shootdown_policy_name(engine, name.as_mut_ptr(), 4)
    );
    told!(
        SHOOTDOWN_OK,
        shootdown_policy_name(engine, name.as_mut_ptr(), 64)
    );
    told!(
        SHOOTDOWN_INVALID,
        shootdown_stat_name(10_000, name.as_mut_ptr(), 64)
    );
}
