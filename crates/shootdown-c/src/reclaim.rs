//! One flush for pages of many spaces.

use shootdown::reclaim;

use crate::host::Host;
use crate::layout::{EngineStorage, ReclaimStorage, SpaceStorage, TicketStorage};
use crate::machine::{Machine, machine};
use crate::opaque::{Opaque, Stored};
use crate::space::space_of;
use crate::status::{Outcome, SHOOTDOWN_ALREADY, SHOOTDOWN_OTHER_ENGINE, Status, status};
use crate::ticket::Ticket;

/// What lies in the memory of a reclaim.
#[derive(Debug)]
pub(crate) struct Reclaim {
    machine: &'static Machine,
    spaces: reclaim::Reclaim<'static, Host, ()>,
}

// SAFETY: 1. `Opaque::at` asserts it.
unsafe impl Stored for Reclaim {
    type Storage = ReclaimStorage;
    const MARK: u64 = 0x7265_636c_6169_6d43;
}

/// Leaf entries of space were cleared, whose flush may come late: adds the CPUs that may hold them. Call it after the change and before releasing the lock that protects the
/// tables, for each space that mapped a page. The page must be clean, or not be stored before the flush: until then CPUs may write to it. Any context but NMI; does not wait
/// for other CPUs. Who takes rights away, copies on a write or unmaps for a process waits for a flush instead.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE (also if spaces of two engines are added), SHOOTDOWN_NO_MEMORY,
/// SHOOTDOWN_BUSY (another CPU adds to it, too).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_reclaim_add(
    engine: *mut EngineStorage,
    reclaim: *mut ReclaimStorage,
    space: *mut SpaceStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        // SAFETY: duty 1.
        let space = unsafe { space_of(machine, space) }?;
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Reclaim>::at(reclaim) }?;
        machine.check_memory()?;
        if memory.get().is_err() {
            memory.fill(|| Reclaim {
                machine,
                spaces: reclaim::Reclaim::new(&machine.engine, ()),
            })?;
        }
        memory.change_value(|reclaim| match core::ptr::eq(reclaim.machine, machine) {
            true => {
                reclaim.spaces.add(&space.space);
                Ok(())
            }
            false => Err(SHOOTDOWN_OTHER_ENGINE),
        })?
    })())
}

/// Starts one flush for all spaces that were added, with one interrupt a CPU, puts the duty to wait for it into ticket, which is empty, and empties reclaim. Frames of the pages are
/// reused after the wait. Context as shootdown_submit_flush.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED (nothing was added: there is nothing to wait for), SHOOTDOWN_NO_MEMORY,
/// SHOOTDOWN_ALREADY (the ticket is not empty).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_reclaim_submit(
    reclaim: *mut ReclaimStorage,
    ticket: *mut TicketStorage,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Reclaim>::at(reclaim) }?;
        // SAFETY: duty 1.
        let ticket = unsafe { Opaque::<Ticket>::at(ticket) }?;
        memory.get()?.machine.check_memory()?;
        submit(memory, ticket)
    })())
}

fn submit(memory: &Opaque<Reclaim>, ticket: &Opaque<Ticket>) -> Outcome {
    if ticket.get().is_ok() {
        return Err(SHOOTDOWN_ALREADY);
    }
    let reclaim = memory.take()?;
    ticket.fill(|| Ticket::Flush(reclaim.spaces.submit()))
}
