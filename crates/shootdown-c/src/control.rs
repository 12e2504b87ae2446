//! Kicks, barriers, and functions that CPUs run wherever they poll.

use core::ffi::c_void;

use shootdown::control::KickTicket;

use crate::cpus::{CpuSet, cpu_id, mask_at};
use crate::function::{Bound, Function};
use crate::host::Host;
use crate::layout::{EngineStorage, SpaceStorage, TicketStorage};
use crate::machine::{Machine, machine};
use crate::opaque::Opaque;
use crate::space::space_of;
use crate::status::{SHOOTDOWN_INVALID, SHOOTDOWN_NOT_ONLINE, Status, status};
use crate::ticket::Ticket;

/// Sends, and puts the right to wait into `ticket`, unless that is null.
///
/// # Safety
/// 1. `ticket` is null or leads to a ticket.
unsafe fn send(
    machine: &'static Machine,
    ticket: *mut TicketStorage,
    send: impl FnOnce() -> KickTicket<'static, Host>,
) -> Result<(), Status> {
    machine.check_memory()?;
    if ticket.is_null() {
        let _ = send();
        return Ok(());
    }
    // SAFETY: duty 1.
    let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
    memory.fill(|| Ticket::Kick(send()))
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
        let targets = match targets.is_null() {
            true => machine.engine.ready_cpus(),
            // SAFETY: duty 1.
            false => unsafe { mask_at(targets) }?,
        };
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
        let targets = match targets.is_null() {
            true => machine.engine.ready_cpus(),
            // SAFETY: duty 1.
            false => unsafe { mask_at(targets) }?,
        };
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
/// as giving back vector registers. The function uses nothing of the engine, takes no lock and waits for nothing: it runs wherever the target polls. Any context but NMI,
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
