//! Calls: run this function on those CPUs, and wait, or not.

use core::ffi::c_void;

use shootdown::{
    CallTargets,
    calls::{SubmitRefused, Wait},
};

use crate::cpus::{CpuSet, cpu_id, mask_at, put_mask};
use crate::function::{Bound, Function};
use crate::layout::{EngineStorage, TicketStorage};
use crate::machine::machine;
use crate::opaque::Opaque;
use crate::status::{SHOOTDOWN_BUSY, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_ONLINE, Status, status};
use crate::ticket::Ticket;

/// Runs function on target and waits until it has returned. Interrupts and preemption in any state; spins. What this CPU was called for runs
/// while it waits, in the caller's context: hold no lock that such a function takes, and none that a target spins for with interrupts off.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_IN_FUNCTION, SHOOTDOWN_NOT_ONLINE
/// (target); then the function has not run.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_call_one(
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
        machine.check_outside_function()?;
        let called = machine.engine.call_one(target, &|cpu| function.run(cpu));
        called.map_err(|_| SHOOTDOWN_NOT_ONLINE)
    })())
}

/// Runs function on every online CPU of targets, this one too if it is named, and waits until all have returned. Writes to ran, unless it
/// is null, which they were. Context and errors as shootdown_call_one, but a target that is not online is passed over.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_call_many(
    engine: *mut EngineStorage,
    targets: *const CpuSet,
    function: Function,
    data: *mut c_void,
    ran: *mut CpuSet,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let targets = unsafe { mask_at(targets) }?;
        let function = Bound::new(machine, function, data)?;
        machine.check_outside_function()?;
        let called = machine.engine.call_many(&targets, &|cpu| function.run(cpu));
        // SAFETY: duty 1.
        unsafe { put_mask(ran, &called) };
        Ok(())
    })())
}

/// Runs function on every online CPU. As shootdown_call_many.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_call_all(
    engine: *mut EngineStorage,
    function: Function,
    data: *mut c_void,
    ran: *mut CpuSet,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let function = Bound::new(machine, function, data)?;
        machine.check_outside_function()?;
        let called = machine
            .engine
            .call_many(CallTargets::Online, &|cpu| function.run(cpu));
        // SAFETY: duty 1.
        unsafe { put_mask(ran, &called) };
        Ok(())
    })())
}

/// Has every online CPU of targets run function, and waits for nothing: neither for them nor for a free slot, of which a CPU has three. Any
/// context but NMI, under any lock, also inside a called function. This CPU, if it is named, runs it in its next interrupt, as what it posts to
/// itself by shootdown_post_node; three such functions may wait. Writes to sent, unless it is null, who will run it. data must stay valid until all
/// have.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_BUSY (all slots of this CPU are taken, or three functions wait
/// for itself, or it is not online and another CPU posts that is not, or goes offline: try again); then nothing was sent.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_post(
    engine: *mut EngineStorage,
    targets: *const CpuSet,
    function: Function,
    data: *mut c_void,
    sent: *mut CpuSet,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let targets = unsafe { mask_at(targets) }?;
        let function = Bound::new(machine, function, data)?;
        machine.check_memory()?;
        let posted = machine
            .engine
            .try_post(&targets, move |cpu| function.run(cpu));
        let posted = posted.map_err(|_| SHOOTDOWN_BUSY)?;
        // SAFETY: duty 1.
        unsafe { put_mask(sent, &posted) };
        Ok(())
    })())
}

/// Has every online CPU of targets run function, and puts into ticket, which is empty, the right to wait until all have. Context as
/// shootdown_call_one: it may wait for a free slot. data must stay valid until the ticket was waited for.
///
/// Errors: as shootdown_call_many; SHOOTDOWN_ALREADY (the ticket is not empty).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_submit_call(
    engine: *mut EngineStorage,
    targets: *const CpuSet,
    function: Function,
    data: *mut c_void,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let targets = unsafe { mask_at(targets) }?;
        let function = Bound::new(machine, function, data)?;
        // SAFETY: duty 1.
        let ticket = unsafe { Opaque::<Ticket>::at(ticket) }?;
        machine.check_outside_function()?;
        ticket.fill(|| {
            let submitted =
                machine
                    .engine
                    .submit(&targets, move |cpu| function.run(cpu), Wait::Done);
            Ticket::Call(submitted, machine)
        })
    })())
}

/// Has target run function, and puts into ticket, which is empty, the right to wait until it has, or to give the call up by shootdown_ticket_give_up as long as function has not begun. Any
/// context but NMI, under any lock, also inside a called function: it waits for nothing, also not for a free slot. data must stay valid until the ticket was waited for or given up.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE (target), SHOOTDOWN_INVALID (target is this CPU), SHOOTDOWN_BUSY (all
/// slots of this CPU are taken, or it is not online and another CPU posts that is not, or goes offline: try again), SHOOTDOWN_ALREADY (the ticket is not empty); then nothing was sent.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_try_submit_call(
    engine: *mut EngineStorage,
    target: u32,
    function: Function,
    data: *mut c_void,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        let target = cpu_id(target)?;
        let function = Bound::new(machine, function, data)?;
        // SAFETY: duty 1.
        let ticket = unsafe { Opaque::<Ticket>::at(ticket) }?;
        machine.check_memory()?;
        ticket.try_fill(|| {
            let control = machine.engine.control();
            let submitted = control.try_submit(target, move |cpu| function.run(cpu));
            let submitted = submitted.map_err(|refused| match refused {
                SubmitRefused::NotReady => SHOOTDOWN_NOT_ONLINE,
                SubmitRefused::ThisCpu => SHOOTDOWN_INVALID,
                SubmitRefused::Busy => SHOOTDOWN_BUSY,
            })?;
            Ok(Ticket::Call(submitted, machine))
        })
    })())
}
