//! Engines from their beginning: memory, CPUs that come and go, the interrupt.

use crate::cpus::cpu_id;
use crate::host::{Host, Platform};
use crate::layout::{EngineStorage, MemoryStorage};
use crate::machine::{CpuState, Machine, machine};
use crate::opaque::Opaque;
use crate::status::{SHOOTDOWN_ALREADY, SHOOTDOWN_INVALID, SHOOTDOWN_LOADED, Status, status};

/// Makes an engine of zeroed memory. size is sizeof(shootdown_engine_t): it tells whether header and library are for the same number of CPUs. Once,
/// on any CPU, before anything else; does not block.
///
/// Errors: SHOOTDOWN_NULL (also for a required function of the platform), SHOOTDOWN_INVALID (size, alignment, or one of preempt_disable and
/// preempt_enable without the other), SHOOTDOWN_ALREADY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_init(
    engine: *mut EngineStorage,
    size: usize,
    platform: *const Platform,
) -> Status {
    status((|| {
        if size != size_of::<EngineStorage>() {
            return Err(SHOOTDOWN_INVALID);
        }
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Machine>::at(engine) }?;
        // SAFETY: duty 1.
        let host = unsafe { Host::of(platform) }?;
        memory.fill(|| Machine::new(host))
    })())
}

/// Gives cpu its zeroed memory, which it needs before it uses the engine in any way (shootdown_poll does nothing before). Once for each CPU
/// that there is, on any CPU; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_ALREADY (the CPU has memory, or
/// the memory is another CPU's).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_attach(
    engine: *mut EngineStorage,
    cpu: u32,
    memory: *mut MemoryStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let cpu = cpu_id(cpu)?;
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<CpuState>::at(memory) }?;
        machine.attach(cpu, memory)
    })())
}

/// Makes the running CPU a target, and drops every translation that it holds. Call it on the CPU itself, with interrupts off, when its number, its
/// vector and its interrupt controller work; does not block. From then on a CPU that waits with interrupts off calls shootdown_poll in its loop.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_ALREADY, SHOOTDOWN_IN_FUNCTION.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_online(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let here = machine.here()?;
        here.check_outside_function()?;
        if machine.is_online(here.cpu) {
            return Err(SHOOTDOWN_ALREADY);
        }
        machine.engine.online();
        Ok(())
    })())
}

/// Ends what shootdown_online began: when it returns, the CPU is no target any more, and what was sent to it has run. Call it on the CPU itself,
/// with interrupts off, after it has left its address space, and with no lock held that another CPU may spin for or that a called function takes.
/// Spins for all other online CPUs, and runs what this CPU was called for. Afterwards the CPU may be halted, or come online again.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE, SHOOTDOWN_LOADED (call shootdown_switch_away
/// first), SHOOTDOWN_IN_FUNCTION.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_offline(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let here = machine.here()?;
        here.check_outside_function()?;
        machine.check_online(here.cpu)?;
        match here.loaded() {
            Some(_) => Err(SHOOTDOWN_LOADED),
            None => {
                machine.engine.offline();
                Ok(())
            }
        }
    })())
}

/// The body of the engine's interrupt vector: call it there, with interrupts off, after the interrupt was acknowledged to the controller. Does not
/// block; runs the functions that were called here.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY; an interrupt that comes before there is anything to serve
/// is harmless.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_handle_ipi(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        machine.check_attached()?;
        machine.engine.handle_ipi();
        Ok(())
    })())
}

/// Serves the flushes that wait for this CPU, and no functions, so it may be called under every lock: call it in every loop that spins with interrupts
/// off for something that another CPU holds. Any context but NMI; does not block. Does nothing on a CPU without memory.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_poll(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        if machine.check_attached().is_ok() {
            machine.engine.poll();
        }
        Ok(())
    })())
}
