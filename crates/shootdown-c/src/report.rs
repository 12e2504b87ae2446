//! What the engine says of itself, and how it is set: counters and policies by their names, the watchdog.

use core::ffi::c_char;

use shootdown::{Policy, watch::Stats};

use crate::cpus::cpu_id;
use crate::layout::EngineStorage;
use crate::line::{put_text, text_of};
use crate::machine::machine;
use crate::opaque::check_pointer;
use crate::status::{SHOOTDOWN_INVALID, Status, status};

/// As the CPU of shootdown_stat: the sum of all.
pub const SHOOTDOWN_ALL_CPUS: u32 = u32::MAX;

/// Writes to value the counter of this name of cpu, or of all (SHOOTDOWN_ALL_CPUS); zero on a CPU without memory. Names are those of the Rust
/// structure shootdown::watch::Stats: requests_published, ipis_sent, functions_run, remote_flushes, early_acks ... Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_INVALID (there is no such counter).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says; the name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_stat(
    engine: *const EngineStorage,
    cpu: u32,
    name: *const c_char,
    value: *mut u64,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let name = unsafe { text_of(name) }?;
        check_pointer(value)?;
        let stats = match cpu {
            SHOOTDOWN_ALL_CPUS => machine.engine.watch().total_stats(),
            cpu => machine.engine.watch().stats(cpu_id(cpu)?),
        };
        let mut counters = stats.iter();
        let found = counters.find(|(known, _)| *known == name);
        let (_, count) = found.ok_or(SHOOTDOWN_INVALID)?;
        // SAFETY: duty 1.
        unsafe { value.write(count) };
        Ok(())
    })())
}

/// Writes to buffer, of capacity bytes (64 are enough), the name of counter number index. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (there is no further counter, or the buffer is too small).
///
/// # Safety
/// 1. The buffer is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_stat_name(
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
) -> Status {
    status((|| {
        let found = Stats::default().iter().nth(index);
        let (name, _) = found.ok_or(SHOOTDOWN_INVALID)?;
        // SAFETY: duty 1.
        unsafe { put_text(name, buffer, capacity) }
    })())
}

/// Sets the policy for requests submitted from now on: best (the default), published or before, and behind it what is on besides, each after a +:
/// concurrent, inline, early-ack, prefetch, defer. Under before, and what is built on it without concurrent, preemption is disabled from a
/// flush's submission until its ticket has been waited for, on the CPU that submitted it: the task does not sleep or yield in between. Any
/// context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_INVALID (a word is not known).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says; the name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_set_policy(
    engine: *mut EngineStorage,
    name: *const c_char,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let name = unsafe { text_of(name) }?;
        let policy = Policy::from_name(name).ok_or(SHOOTDOWN_INVALID)?;
        machine.engine.set_policy(policy);
        Ok(())
    })())
}

/// Writes to buffer, of capacity bytes (16 are enough), the name of the policy in force; custom for a combination without a name. Any context; does
/// not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_INVALID (the buffer is too small).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_policy_name(
    engine: *const EngineStorage,
    buffer: *mut c_char,
    capacity: usize,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let name = machine.engine.policy().name();
        // SAFETY: duty 1.
        unsafe { put_text(name, buffer, capacity) }
    })())
}

/// Looks after requests that nobody waits for in the engine, since their CPU has posted or does not come back from send_ipi, and reports those to
/// on_stall, and interrupts again, that take twice as long as shootdown_set_stall_ns allows. Asks again for an interrupt to this CPU itself that was
/// refused. For the timer's tick of each CPU; any context but NMI, does not block. Does nothing on a CPU without memory.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_look(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        machine.engine.watch().look();
        Ok(())
    })())
}

/// Has waits that take longer than stall_ns nanoseconds reported to on_stall, again after twice, four times ... as long. At the start it is ten
/// seconds; 0 is never. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_set_stall_ns(
    engine: *mut EngineStorage,
    stall_ns: u64,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        machine.engine.watch().set_stall_ns(stall_ns);
        Ok(())
    })())
}
