//! What C may get wrong and can be told, on one CPU; and two threads that play CPUs, with everything that waits.

mod support;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use shootdown_c::*;
use support::{Machine, cpus};

static HITS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn hit(_: *mut c_void, _: u32) {
    HITS.fetch_add(1, Ordering::Relaxed);
}

/// Each of them is called as a C kernel with a mistake would.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the pointers are null, or what the header says.
        unsafe { $function($($argument),*) }
    }};
}

#[test]
fn null_pointers_are_told() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let table = support::table();
    assert_eq!(
        call!(shootdown_init(null_mut(), SHOOTDOWN_ENGINE_SIZE, &table)),
        SHOOTDOWN_NULL
    );
    let fresh: *mut EngineStorage = Box::leak(Box::new(EngineStorage::ZERO));
    assert_eq!(
        call!(shootdown_init(fresh, SHOOTDOWN_ENGINE_SIZE, null())),
        SHOOTDOWN_NULL
    );
    let mut holed = table;
    holed.send_ipi = None;
    assert_eq!(
        call!(shootdown_init(fresh, SHOOTDOWN_ENGINE_SIZE, &holed)),
        SHOOTDOWN_NULL
    );
    assert_eq!(
        call!(shootdown_call_one(engine, 0, None, null_mut())),
        SHOOTDOWN_NULL
    );
    assert_eq!(
        call!(shootdown_call_many(
            engine,
            null(),
            Some(hit),
            null_mut(),
            null_mut()
        )),
        SHOOTDOWN_NULL
    );
    assert_eq!(
        call!(shootdown_submit_flush_kernel(
            engine,
            null(),
            0,
            0,
            null_mut()
        )),
        SHOOTDOWN_NULL
    );
    assert_eq!(
        call!(shootdown_switch_to(engine, null_mut())),
        SHOOTDOWN_NULL
    );
    assert_eq!(call!(shootdown_ticket_drop(null_mut())), SHOOTDOWN_NULL);
    assert_eq!(call!(shootdown_set_policy(engine, null())), SHOOTDOWN_NULL);
    assert_eq!(call!(shootdown_poll(null_mut())), SHOOTDOWN_NULL);
    let odd = engine.cast::<u8>().wrapping_add(8).cast::<EngineStorage>();
    assert_eq!(call!(shootdown_poll(odd)), SHOOTDOWN_INVALID);
}

#[test]
fn what_was_done_before_or_not_yet_is_told() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let table = support::table();
    assert_eq!(
        call!(shootdown_init(engine, SHOOTDOWN_ENGINE_SIZE, &table)),
        SHOOTDOWN_ALREADY
    );
    assert_eq!(
        call!(shootdown_init(engine, SHOOTDOWN_ENGINE_SIZE + 1, &table)),
        SHOOTDOWN_INVALID
    );
    let fresh: *mut EngineStorage = Box::leak(Box::new(EngineStorage::ZERO));
    assert_eq!(call!(shootdown_online(fresh)), SHOOTDOWN_NOT_INITIALISED);
    assert_eq!(call!(shootdown_online(engine)), SHOOTDOWN_ALREADY);
    let memory: *mut MemoryStorage = Box::leak(Box::new(MemoryStorage::ZERO));
    assert_eq!(
        call!(shootdown_attach(engine, 0, memory)),
        SHOOTDOWN_ALREADY
    );
    assert_eq!(
        call!(shootdown_attach(engine, SHOOTDOWN_MAX_CPUS as u32, memory)),
        SHOOTDOWN_UNKNOWN_CPU
    );
    assert_eq!(call!(shootdown_attach(engine, 1, memory)), SHOOTDOWN_OK);
    assert_eq!(
        call!(shootdown_attach(engine, 2, memory)),
        SHOOTDOWN_ALREADY
    );
    assert_eq!(
        call!(shootdown_call_one(engine, 1, Some(hit), null_mut())),
        SHOOTDOWN_NOT_ONLINE
    );
    assert_eq!(
        call!(shootdown_call_one(engine, 9999, Some(hit), null_mut())),
        SHOOTDOWN_UNKNOWN_CPU
    );
    let mut ticket = TicketStorage::ZERO;
    assert_eq!(
        call!(shootdown_ticket_wait(&mut ticket)),
        SHOOTDOWN_NOT_INITIALISED
    );
    assert_eq!(call!(shootdown_ticket_drop(&mut ticket)), SHOOTDOWN_OK);
    assert_eq!(
        call!(shootdown_kick(engine, null(), &mut ticket)),
        SHOOTDOWN_OK
    );
    assert_eq!(
        call!(shootdown_kick(engine, null(), &mut ticket)),
        SHOOTDOWN_ALREADY
    );
    assert_eq!(call!(shootdown_ticket_wait(&mut ticket)), SHOOTDOWN_OK);
}

#[test]
fn a_cpu_without_memory_is_told() {
    let machine = Machine::with_cpus(1);
    support::become_cpu(7);
    let engine = machine.engine();
    assert_eq!(call!(shootdown_online(engine)), SHOOTDOWN_NO_MEMORY);
    assert_eq!(call!(shootdown_poll(engine)), SHOOTDOWN_OK);
    assert_eq!(call!(shootdown_handle_ipi(engine)), SHOOTDOWN_NO_MEMORY);
    assert_eq!(
        call!(shootdown_call_all(
            engine,
            Some(hit),
            null_mut(),
            null_mut()
        )),
        SHOOTDOWN_NO_MEMORY
    );
    assert_eq!(
        call!(shootdown_flush_kernel(engine, null(), 0, 0)),
        SHOOTDOWN_NO_MEMORY
    );
}

#[test]
fn spaces_are_left_before_they_end() {
    let machine = Machine::with_cpus(1);
    let engine = machine.engine();
    let mut space = SpaceStorage::ZERO;
    assert_eq!(
        call!(shootdown_switch_to(engine, &mut space)),
        SHOOTDOWN_NOT_INITIALISED
    );
    assert_eq!(
        call!(shootdown_space_init(engine, &mut space, 0x1000)),
        SHOOTDOWN_OK
    );
    assert_eq!(
        call!(shootdown_space_init(engine, &mut space, 0x1000)),
        SHOOTDOWN_ALREADY
    );
    assert_eq!(
        call!(shootdown_switch_away(engine, 0x2000)),
        SHOOTDOWN_NOT_LOADED
    );
    assert_eq!(call!(shootdown_switch_to(engine, &mut space)), SHOOTDOWN_OK);
    assert_eq!(
        call!(shootdown_space_deinit(engine, &mut space)),
        SHOOTDOWN_LOADED
    );
    assert_eq!(call!(shootdown_offline(engine)), SHOOTDOWN_LOADED);
    let policy = c"before";
    assert_eq!(
        call!(shootdown_set_policy(engine, policy.as_ptr())),
        SHOOTDOWN_OK
    );
    // Under this policy the CPU leaves the space at once, but has not said so.
    assert_eq!(call!(shootdown_enter_lazy(engine, 0x2000)), SHOOTDOWN_OK);
    assert_eq!(
        call!(shootdown_space_deinit(engine, &mut space)),
        SHOOTDOWN_LOADED
    );
    assert_eq!(call!(shootdown_switch_away(engine, 0x2000)), SHOOTDOWN_OK);
    let other = Machine::with_cpus(1);
    assert_eq!(
        call!(shootdown_switch_to(other.engine(), &mut space)),
        SHOOTDOWN_OTHER_ENGINE
    );
    assert_eq!(
        call!(shootdown_space_deinit(engine, &mut space)),
        SHOOTDOWN_OK
    );
    assert_eq!(call!(shootdown_offline(engine)), SHOOTDOWN_OK);
    assert_eq!(call!(shootdown_offline(engine)), SHOOTDOWN_NOT_ONLINE);
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
    assert_eq!(
        call!(shootdown_flush_kernel(engine, &range(12), 1, 0)),
        SHOOTDOWN_OK
    );
    for (shift, flags) in [(11, 0), (49, 0), (u32::MAX, 0), (12, 2)] {
        assert_eq!(
            call!(shootdown_flush_kernel(engine, &range(shift), 1, flags)),
            SHOOTDOWN_INVALID
        );
    }
    assert_eq!(
        call!(shootdown_set_policy(engine, c"fastest".as_ptr())),
        SHOOTDOWN_INVALID
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
    assert_eq!(
        call!(shootdown_policy_name(engine, name.as_mut_ptr(), 4)),
        SHOOTDOWN_INVALID
    );
    assert_eq!(
        call!(shootdown_policy_name(engine, name.as_mut_ptr(), 64)),
        SHOOTDOWN_OK
    );
    assert_eq!(
        call!(shootdown_stat_name(10_000, name.as_mut_ptr(), 64)),
        SHOOTDOWN_INVALID
    );
}

/// What a called function finds that calls.
unsafe extern "C" fn calls_others(engine: *mut c_void, _: u32) {
    let engine = engine.cast();
    let mut ticket = TicketStorage::ZERO;
    assert_eq!(
        call!(shootdown_call_all(
            engine,
            Some(hit),
            null_mut(),
            null_mut()
        )),
        SHOOTDOWN_IN_FUNCTION
    );
    assert_eq!(
        call!(shootdown_submit_call(
            engine,
            &cpus(1),
            Some(hit),
            null_mut(),
            &mut ticket
        )),
        SHOOTDOWN_IN_FUNCTION
    );
    assert_eq!(
        call!(shootdown_flush_kernel(
            engine,
            null(),
            0,
            SHOOTDOWN_FREED_TABLES
        )),
        SHOOTDOWN_OK
    );
}

#[test]
fn two_cpus_call_flush_and_post() {
    let machine = Machine::with_cpus(2);
    let engine = machine.engine();
    let before = HITS.load(Ordering::Relaxed);
    machine.beside(1, || {
        let mut ran = CpuSet::default();
        assert_eq!(
            call!(shootdown_call_all(engine, Some(hit), null_mut(), &mut ran)),
            SHOOTDOWN_OK
        );
        assert_eq!(ran, cpus(0b11));
        assert_eq!(
            call!(shootdown_call_one(
                engine,
                1,
                Some(calls_others),
                engine.cast()
            )),
            SHOOTDOWN_OK
        );
        let mut ticket = TicketStorage::ZERO;
        let submitted = call!(shootdown_submit_call(
            engine,
            &cpus(0b10),
            Some(hit),
            null_mut(),
            &mut ticket
        ));
        assert_eq!(submitted, SHOOTDOWN_OK);
        assert_eq!(call!(shootdown_ticket_wait(&mut ticket)), SHOOTDOWN_OK);
        let ranges = [12, 21, 30].map(|page_shift| Range {
            start: 1 << 30,
            count: 2,
            page_shift,
        });
        let flush = shootdown_submit_flush_kernel;
        assert_eq!(
            call!(flush(
                engine,
                ranges.as_ptr(),
                3,
                SHOOTDOWN_FREED_TABLES,
                &mut ticket
            )),
            SHOOTDOWN_OK
        );
        assert_eq!(call!(shootdown_ticket_drop(&mut ticket)), SHOOTDOWN_OK);
        let node: &'static mut NodeStorage = Box::leak(Box::new(NodeStorage::ZERO));
        assert_eq!(
            call!(shootdown_post_node(engine, 1, node)),
            SHOOTDOWN_NOT_INITIALISED
        );
        assert_eq!(
            call!(shootdown_node_init(engine, node, Some(hit), null_mut())),
            SHOOTDOWN_OK
        );
        assert_eq!(
            call!(shootdown_node_init(engine, node, Some(hit), null_mut())),
            SHOOTDOWN_ALREADY
        );
        assert_eq!(call!(shootdown_post_node(engine, 1, node)), SHOOTDOWN_OK);
        while HITS.load(Ordering::Relaxed) < before + 4 {
            std::hint::spin_loop();
        }
        let mut value = 0;
        assert_eq!(
            call!(shootdown_stat(
                engine,
                1,
                c"remote_flushes".as_ptr(),
                &mut value
            )),
            SHOOTDOWN_OK
        );
        assert!(value >= 1, "CPU 1 has flushed for CPU 0");
    });
}
