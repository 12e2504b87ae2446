//! Kicks, barriers, and functions that CPUs run wherever they poll.

use core::ffi::c_void;

use shootdown::control::{KickTicket, Rendezvous};
use shootdown::{CpuId, CpuMask, Cpus, Platform};

use crate::cpus::{CpuSet, cpu_id, mask_at, put_mask};
use crate::function::{Bound, Function};
use crate::host::Host;
use crate::layout::{EngineStorage, SpaceStorage, TicketStorage};
use crate::machine::{Machine, N, machine};
use crate::opaque::Opaque;
use crate::space::space_of;
use crate::status::{
    Outcome, SHOOTDOWN_BUSY, SHOOTDOWN_FAILED, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_ONLINE,
    SHOOTDOWN_NULL, Status, status,
};
use crate::ticket::Ticket;

/// Sends, and puts the right to wait into `ticket`, unless that is null.
///
/// # Safety
/// 1. `ticket` is null or leads to a ticket.
unsafe fn send(
    machine: &'static Machine,
    ticket: *mut TicketStorage,
    send: impl FnOnce() -> KickTicket<'static, Host>,
) -> Outcome<()> {
    machine.check_memory()?;
    if ticket.is_null() {
        let _ = send();
        return Ok(());
    }
    // SAFETY: duty 1.
    let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
    memory.fill(|| Ticket::Kick(send()))
}

/// The CPUs of `targets`, or all that are online if that is null.
///
/// # Safety
/// 1. `targets` is null or leads to a set.
unsafe fn targets_at(
    machine: &'static Machine,
    targets: *const CpuSet,
) -> Outcome<CpuMask<Cpus<N>>> {
    match targets.is_null() {
        true => Ok(machine.engine.ready_cpus()),
        // SAFETY: duty 1.
        false => unsafe { mask_at(targets) },
    }
}

/// Has every online CPU of targets, or of all if that is null, pass through the engine once, but for this one: a halted CPU is awake then, a virtual
/// CPU has left its guest, a CPU in a stretch with interrupts off that does not poll has left it. Puts into ticket, which is empty, the
/// right to wait for that; if ticket is null, nobody waits. Any context but NMI, also inside a called function; it may wait for a free
/// slot, serving flushes.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_ALREADY (the ticket is not empty).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_kick(
    engine: *mut EngineStorage,
    targets: *const CpuSet,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let targets = unsafe { targets_at(machine, targets) }?;
        // SAFETY: duty 1.
        unsafe { send(machine, ticket, || machine.engine.control().kick(&targets)) }
    })())
}

/// Has every online CPU of targets, or of all if that is null, fetch its instructions anew, this one too, by synchronise_here of the platform. Write the changed code and clean the caches
/// before. Until the wait is over a CPU may execute what was there before. Ticket and context as shootdown_kick.
///
/// Errors: as shootdown_kick, and SHOOTDOWN_INVALID if the platform has no synchronise_here.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_serialise(
    engine: *mut EngineStorage,
    targets: *const CpuSet,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let targets = unsafe { targets_at(machine, targets) }?;
        if !machine.engine.platform().can_synchronise() {
            return Err(SHOOTDOWN_INVALID);
        }
        let serialise = || machine.engine.control().serialise(&targets);
        // SAFETY: duty 1.
        unsafe { send(machine, ticket, serialise) }
    })())
}

/// A full barrier on every CPU that runs in space, this one too, between this call and the end of the wait (Linux: membarrier, private expedited); lazy CPUs are left alone, and issue one
/// before they use the space again. Ticket and context as shootdown_kick.
///
/// Errors: as shootdown_kick, and SHOOTDOWN_OTHER_ENGINE.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_barrier(
    engine: *mut EngineStorage,
    space: *mut SpaceStorage,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let space = unsafe { space_of(machine, space) }?;
        let barrier = || machine.engine.control().barrier(&space.space);
        // SAFETY: duty 1.
        unsafe { send(machine, ticket, barrier) }
    })())
}

/// Runs function on target and waits until it has returned, also where the target spins for a lock of the caller's, if its spin loop calls shootdown_poll: for what only that CPU can do, such
/// as giving back vector registers. The function uses nothing of the engine, takes no lock, waits for nothing and leaves interrupts off: it runs wherever the target polls. Any context but NMI,
/// also inside a called function; spins, serving flushes. Not between shootdown_walk_begin and shootdown_walk_end.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE (target); then the function has not run.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
/// 2. The function does as it is told above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_ask(
    engine: *mut EngineStorage,
    target: u32,
    function: Function,
    data: *mut c_void,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let target = cpu_id(target)?;
        let function = Bound::new(machine, function, data)?;
        machine.check_memory()?;
        let run = |cpu| function.run(cpu);
        // SAFETY: 1. duty 2.
        let asked = unsafe { machine.engine.control().ask(target, &run) };
        asked.map_err(|_| SHOOTDOWN_NOT_ONLINE)
    })())
}

/// What is called in a rendezvous: on each CPU, once a step, from 0.
pub type StepFunction = Option<unsafe extern "C" fn(data: *mut c_void, cpu: u32, step: u32)>;

/// No flush is served from the first step on: for what runs with caches off, or patches the responder.
pub const SHOOTDOWN_WITHOUT_FLUSHES: u32 = 1;
/// Nobody is interrupted: threads of the kernel come by shootdown_arrive, so that nobody holds a lock.
pub const SHOOTDOWN_OF_THREADS: u32 = 2;

/// Has all online CPUs of targets, and this one, run function at the same time: it begins nowhere before all are inside, and none leaves before it has returned everywhere. In steps, 1 to 64: none
/// begins before all CPUs are done with the one before. CPUs come from the interrupt, or where they poll or wait, and wait for each other with interrupts off, serving flushes. The function
/// uses nothing of the engine, takes no lock, waits for nothing and leaves interrupts off. No CPU comes online or goes offline meanwhile. Not inside a called function, nor between shootdown_walk_begin and
/// shootdown_walk_end; no lock is held that a CPU may spin for without polling. Writes to absent, unless it is null, who did not come within limit_ns.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (steps or flags), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_IN_FUNCTION, SHOOTDOWN_FAILED (not all came in time: nobody has run the function).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
/// 2. The function does as it is told above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_rendezvous(
    engine: *mut EngineStorage,
    targets: *const CpuSet,
    limit_ns: u64,
    steps: u32,
    flags: u32,
    function: StepFunction,
    data: *mut c_void,
    absent: *mut CpuSet,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let targets = unsafe { mask_at(targets) }?;
        let function = function.ok_or(SHOOTDOWN_NULL)?;
        if !(1..=64).contains(&steps)
            || flags & !(SHOOTDOWN_WITHOUT_FLUSHES | SHOOTDOWN_OF_THREADS) != 0
        {
            return Err(SHOOTDOWN_INVALID);
        }
        machine.check_memory()?;
        machine.check_outside_function()?;
        let mut how = Rendezvous::within(limit_ns).with_steps(steps);
        if flags & SHOOTDOWN_WITHOUT_FLUSHES != 0 {
            how = how.without_flushes();
        }
        if flags & SHOOTDOWN_OF_THREADS != 0 {
            how = how.of_threads();
        }
        // An address that CPUs may share.
        let data = data.expose_provenance();
        let run = |cpu: CpuId, step: u32| {
            let data = core::ptr::with_exposed_provenance_mut(data);
            // SAFETY: duty 2.
            unsafe { function(data, cpu.as_u32(), step) };
        };
        // SAFETY: 1. duty 2.
        let met = unsafe { machine.engine.control().rendezvous(how, &targets, &run) };
        met.map_err(|late| {
            // SAFETY: duty 1.
            unsafe { put_mask(absent, &late.cpus) };
            SHOOTDOWN_FAILED
        })
    })())
}

/// Comes to a rendezvous of SHOOTDOWN_OF_THREADS that wants this CPU, and returns when it is over. SHOOTDOWN_BUSY if there is none now. No lock held.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_BUSY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_arrive(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        machine.check_memory()?;
        match machine.engine.control().arrive() {
            true => Ok(()),
            false => Err(SHOOTDOWN_BUSY),
        }
    })())
}

/// This CPU leaves the kernel, for user mode or a guest, and uses nothing of it until shootdown_leave_quiet: no kernel code and no kernel memory but what is never changed or unmapped, on
/// the rest of its way out and on every way in (system call, interrupt, exception, NMI, machine check, VM exit) up to that call. Meanwhile flushes of the kernel's part, kicks,
/// shootdown_serialise and shootdown_post_deferrable do not interrupt it. Interrupts off, last of all.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY; then it is not quiet.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
/// 2. It does as it is told above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_enter_quiet(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        machine.check_memory()?;
        // SAFETY: 1. and 2. duty 2.
        unsafe { machine.engine.control().enter_quiet() };
        Ok(())
    })())
}

/// This CPU is in the kernel again, and makes good what it has missed: all translations go, instructions are fetched anew, and it interrupts itself, where there was anything. First on every way
/// in, also of an NMI, with interrupts off. SHOOTDOWN_BUSY if it was in the kernel already; if not, a handler that returns calls shootdown_enter_quiet again.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_BUSY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_leave_quiet(engine: *mut EngineStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        match machine.engine.control().leave_quiet() {
            true => Ok(()),
            false => Err(SHOOTDOWN_BUSY),
        }
    })())
}

/// These CPUs may still walk page tables: what they may walk is not given back (waits answer SHOOTDOWN_FAILED) until they are declared dead without this flag.
pub const SHOOTDOWN_LOST: u32 = 1;

/// What CPUs that have died did not run: calls that have ended without an answer, of each of which the function may have run, in part too; nodes that may be posted again.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unserved {
    /// Calls.
    pub calls: u64,
    /// Nodes.
    pub nodes: u64,
}

/// These CPUs have stopped for good: whatever waits for them ends, and what they had begun is completed. They are offline. Those that have died together are declared together. Until they are reset and come
/// online again they execute nothing, and walk no page tables but the kernel's permanent ones, or else flags has SHOOTDOWN_LOST. Their stacks, and what they have lent, stay until
/// shootdown_is_settled says so. Any context but NMI; spins for all other online CPUs, serving flushes: no lock is held that they spin for without polling. Not between shootdown_walk_begin and shootdown_walk_end. Writes to
/// unserved, unless it is null, what they have not run.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (flags, or this CPU is among them), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
/// 2. The CPUs do as it is told above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_declare_dead(
    engine: *mut EngineStorage,
    cpus: *const CpuSet,
    flags: u32,
    unserved: *mut Unserved,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let cpus = unsafe { mask_at(cpus) }?;
        machine.check_memory()?;
        let me = machine.engine.platform().current_cpu();
        if flags & !SHOOTDOWN_LOST != 0 || cpus.contains(me) {
            return Err(SHOOTDOWN_INVALID);
        }
        let control = machine.engine.control();
        let found = match flags {
            // SAFETY: duty 2.
            0 => unsafe { control.declare_dead(&cpus) },
            // SAFETY: duty 2.
            _ => unsafe { control.declare_lost(&cpus) },
        };
        if !unserved.is_null() {
            let found = Unserved {
                calls: found.calls as u64,
                nodes: found.data as u64,
            };
            // SAFETY: duty 1.
            unsafe { unserved.write(found) };
        }
        Ok(())
    })())
}

/// SHOOTDOWN_OK if all that a CPU had begun that has died is complete, and nobody uses what it has lent: its stacks may be used again, and it may come back. SHOOTDOWN_BUSY if not. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_BUSY.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_is_settled(engine: *mut EngineStorage, cpu: u32) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        match machine.engine.control().is_settled(cpu_id(cpu)?) {
            true => Ok(()),
            false => Err(SHOOTDOWN_BUSY),
        }
    })())
}
