//! Tickets: what was submitted and not yet waited for, in memory of C's; and kicks, which have nothing else.

use shootdown::{
    FlushTicket, calls::CallTicket, control::KickTicket, reclaim::PendingFlush, secondary::Held,
};

use crate::host::Host;
use crate::layout::TicketStorage;
use crate::machine::Machine;
use crate::opaque::{Opaque, Stored, check_pointer};
use crate::status::{
    Outcome, SHOOTDOWN_BUSY, SHOOTDOWN_FAILED, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED,
    Status, status,
};

/// What lies in the memory of a ticket. Dropping it waits, but for a kick.
#[derive(Debug)]
pub(crate) enum Ticket {
    Flush(FlushTicket<'static, Host>),
    /// Any task may wait for it.
    Pending(PendingFlush<'static, Host>),
    /// A listener has failed.
    Held(Held<'static, Host, ()>),
    Kick(KickTicket<'static, Host>),
    Call(CallTicket<'static, Host>, &'static Machine),
}

// SAFETY: 1. `Opaque::at` asserts it.
unsafe impl Stored for Ticket {
    type Storage = TicketStorage;
    const MARK: u64 = 0x7469_636b_6574_2d43;
}

impl Ticket {
    fn is_done(&self) -> bool {
        match self {
            Self::Flush(ticket) => ticket.is_done(),
            Self::Pending(flush) => flush.is_done(),
            Self::Held(_) => false,
            Self::Kick(ticket) => ticket.is_done(),
            Self::Call(ticket, _) => ticket.is_done(),
        }
    }

    /// Whether waiting is allowed here.
    fn check_wait(&self) -> Outcome {
        match self {
            Self::Call(ticket, machine) if !ticket.is_done() => machine.check_outside_function(),
            _ => Ok(()),
        }
    }

    /// What is left, if a listener has failed.
    fn wait(self) -> Result<(), Self> {
        let flushed = match self {
            Self::Flush(ticket) => ticket.try_wait(),
            Self::Pending(flush) => flush.try_wait(),
            Self::Held(held) => held.retry(),
            Self::Kick(ticket) => {
                ticket.wait();
                Ok(())
            }
            Self::Call(ticket, _) => {
                ticket.wait();
                Ok(())
            }
        };
        flushed.map_err(Self::Held)
    }
}

/// Waits for what is in the memory, and empties it.
fn wait(memory: &Opaque<Ticket>) -> Outcome {
    memory.get()?.check_wait()?;
    match memory.take()?.wait() {
        Ok(()) => Ok(()),
        Err(left) => {
            memory.fill(|| left)?;
            Err(SHOOTDOWN_FAILED)
        }
    }
}

/// Writes to is_done whether waiting would return at once; an empty ticket is done. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_ticket_is_done(
    ticket: *const TicketStorage,
    is_done: *mut bool,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
        check_pointer(is_done)?;
        let answer = memory.get().map_or(true, Ticket::is_done);
        // SAFETY: duty 1.
        unsafe { is_done.write(answer) };
        Ok(())
    })())
}

/// Waits and empties the ticket. Of a flush: when it returns SHOOTDOWN_OK, no CPU uses the old translations any more, and frames and tables that
/// they led to may be reused; of a kick: all targets have answered; of a call: all targets have run it. Interrupts and preemption in any
/// state; spins, serving the flushes of this CPU, and for a call its functions too (context as shootdown_call_one).
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED (it is empty: nothing was submitted, or it was waited for before),
/// SHOOTDOWN_IN_FUNCTION (of a call, inside a called function: the ticket stays as it was), SHOOTDOWN_FAILED (of a flush: a secondary TLB does not answer and may go on using the old
/// translations, so nothing may be reused; wait again, or shootdown_ticket_give_up).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_ticket_wait(ticket: *mut TicketStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
        wait(memory)
    })())
}

/// What a ticket must meet before its memory goes out of use, on every path: waits if it was not waited for, and does nothing if it is empty.
/// Otherwise as shootdown_ticket_wait.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_ticket_drop(ticket: *mut TicketStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
        match wait(memory) {
            Err(SHOOTDOWN_NOT_INITIALISED) => Ok(()),
            outcome => outcome,
        }
    })())
}

/// Empties the ticket of a flush whose wait has answered SHOOTDOWN_FAILED. What the flush was about may be reused only if the device has been cut off from it. Or that of a call of
/// shootdown_try_submit_call whose function has not begun: then it never will. Any context but NMI; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (of a flush, its wait has not failed; of a kick), SHOOTDOWN_NOT_INITIALISED (it is empty), SHOOTDOWN_NO_MEMORY, SHOOTDOWN_BUSY (the function has begun or has
/// returned, or the call is one of shootdown_submit_call: the ticket stays, wait for it).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_ticket_give_up(ticket: *mut TicketStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
        match memory.get()? {
            Ticket::Held(_) => memory.take().map(drop),
            Ticket::Call(_, machine) => machine.check_memory().and_then(|()| give_up(memory)),
            _ => Err(SHOOTDOWN_INVALID),
        }
    })())
}

fn give_up(memory: &Opaque<Ticket>) -> Outcome {
    match memory.take()? {
        Ticket::Call(ticket, machine) => match ticket.give_up() {
            Ok(()) => Ok(()),
            Err(ticket) => {
                memory.fill(|| Ticket::Call(ticket, machine))?;
                Err(SHOOTDOWN_BUSY)
            }
        },
        other => memory.fill(|| other),
    }
}

/// Does what is left of a flush on the CPU that submitted it, by the task that did: afterwards any task may wait for the ticket, on any CPU, such as one that frees memory. Tickets of kicks
/// stay as they are. Interrupts and preemption in any state; does not wait for other CPUs.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (of a call), SHOOTDOWN_NOT_INITIALISED (it is empty).
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_ticket_hand_over(ticket: *mut TicketStorage) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let memory = unsafe { Opaque::<Ticket>::at(ticket) }?;
        match memory.get()? {
            Ticket::Call(..) => return Err(SHOOTDOWN_INVALID),
            Ticket::Flush(_) => {}
            Ticket::Pending(_) | Ticket::Held(_) | Ticket::Kick(_) => return Ok(()),
        }
        let left = match memory.take()? {
            Ticket::Flush(ticket) => Ticket::Pending(ticket.hand_over()),
            other => other,
        };
        memory.fill(|| left)
    })())
}
