//! Exceptions in user mode become signals.

use core::fmt;

use linux_raw_sys::general as linux;

use super::{SigInfo, Signal, force};
use crate::arch::trap::{TrapFrame, UserException};
use crate::mm::FaultError;
use crate::task::current;
use crate::task::exit::kill_current;

/// An exception in ring 3 that nobody resolved. Interrupts are on.
pub fn user_exception(frame: &mut TrapFrame, exception: UserException) {
    let me = current();
    if let UserException::PageFault {
        error: FaultError::OutOfMemory,
        address,
        ..
    } = exception
    {
        log::warn!(
            "pid {} ({}) tid {} killed by {}: no memory left for {address:#x}",
            me.process().pid(),
            me.process().name(),
            me.tid(),
            Signal::KILL
        );
        kill_current(Signal::KILL);
    }
    let info = signal_for(exception, frame.rip as usize);
    force(&me, frame, info, format_args!("{}", Cause(exception)));
}

/// The signal that Linux sends for it.
fn signal_for(exception: UserException, rip: usize) -> SigInfo {
    match exception {
        UserException::PageFault { address, error, .. } => {
            let code = if error.is_access_violation() {
                linux::SEGV_ACCERR
            } else {
                linux::SEGV_MAPERR
            };
            SigInfo::from_fault(Signal::SEGV, code, address)
        }
        UserException::DivideError => SigInfo::from_fault(Signal::FPE, linux::FPE_INTDIV, rip),
        UserException::FloatingPoint => SigInfo::from_fault(Signal::FPE, linux::FPE_FLTINV, rip),
        UserException::InvalidOpcode => SigInfo::from_fault(Signal::ILL, linux::ILL_ILLOPN, rip),
        UserException::Debug => SigInfo::from_fault(Signal::TRAP, linux::TRAP_TRACE, rip),
        UserException::Breakpoint => SigInfo::from_kernel(Signal::TRAP),
        UserException::AlignmentCheck => SigInfo::from_fault(Signal::BUS, linux::BUS_ADRALN, 0),
        UserException::Overflow
        | UserException::BoundRange
        | UserException::DeviceNotAvailable
        | UserException::Protection { .. }
        | UserException::Other { .. } => SigInfo::from_kernel(Signal::SEGV),
    }
}

/// Prints what happened, for the log.
struct Cause(UserException);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            UserException::PageFault {
                address,
                access,
                error,
            } => {
                let what = match (access.exec, access.write) {
                    (true, _) => "fetch from",
                    (false, true) => "write to",
                    (false, false) => "read of",
                };
                write!(f, "{what} {address:#x} ({error})")
            }
            UserException::DivideError => f.write_str("division by zero or overflow"),
            UserException::FloatingPoint => f.write_str("floating-point error"),
            UserException::InvalidOpcode => f.write_str("undefined instruction"),
            UserException::Debug => f.write_str("debug trap"),
            UserException::Breakpoint => f.write_str("breakpoint"),
            UserException::AlignmentCheck => f.write_str("misaligned access"),
            UserException::Overflow => f.write_str("overflow trap"),
            UserException::BoundRange => f.write_str("bound range exceeded"),
            UserException::DeviceNotAvailable => f.write_str("no floating-point unit"),
            UserException::Protection { code } => {
                write!(
                    f,
                    "privileged instruction or bad address (error code {code:#x})"
                )
            }
            UserException::Other { vector } => write!(f, "exception {vector}"),
        }
    }
}
