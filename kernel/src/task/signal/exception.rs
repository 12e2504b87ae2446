//! Exceptions in user mode become signals.

use core::fmt;

use linux_raw_sys::general as linux;

use super::{SigInfo, Signal, force};
use crate::arch::trap::TrapFrame;
use crate::mm::{FaultAccess, FaultError};
use crate::task::current;
use crate::task::exit::kill_current;

/// An exception in ring 3 that nobody resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserException {
    /// #DE
    DivideError,
    /// #DB: single step or hardware breakpoint
    Debug,
    /// #BP: INT3
    Breakpoint,
    /// #OF
    Overflow,
    /// #BR
    BoundRange,
    /// #UD
    InvalidOpcode,
    /// #NM
    DeviceNotAvailable,
    /// #NP or #SS or #GP, with its error code
    Protection {
        /// Error code.
        code: u64,
    },
    /// #MF or #XM
    FloatingPoint,
    /// #AC
    AlignmentCheck,
    /// #PF that the address space refused
    PageFault {
        /// CR2.
        address: usize,
        /// What was tried.
        access: FaultAccess,
        /// Why it was refused.
        error: FaultError,
    },
    /// Another vector.
    Other {
        /// Vector number.
        vector: u64,
    },
}

/// Makes a signal of it. Interrupts are on.
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
    let rip = frame.rip as usize;
    let info = signal_for(exception, rip);
    let cause = Cause { exception, rip };
    force(&me, frame, info, format_args!("{cause}"));
}

/// The signal that Linux sends for it.
fn signal_for(exception: UserException, rip: usize) -> SigInfo {
    match exception {
        UserException::PageFault { address, error, .. } if error.is_bus_error() => {
            SigInfo::from_fault(Signal::BUS, linux::BUS_ADRERR, address)
        }
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
struct Cause {
    exception: UserException,
    rip: usize,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rip = self.rip;
        let what = match self.exception {
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
                return write!(f, "{what} {address:#x} at rip {rip:#x} ({error})");
            }
            UserException::Protection { code } => {
                return write!(
                    f,
                    "privileged instruction or bad address at rip {rip:#x} (error code {code:#x})"
                );
            }
            UserException::Other { vector } => {
                return write!(f, "exception {vector} at rip {rip:#x}");
            }
            UserException::DivideError => "division by zero or overflow",
            UserException::FloatingPoint => "floating-point error",
            UserException::InvalidOpcode => "undefined instruction",
            UserException::Debug => "debug trap",
            UserException::Breakpoint => "breakpoint",
            UserException::AlignmentCheck => "misaligned access",
            UserException::Overflow => "overflow trap",
            UserException::BoundRange => "bound range exceeded",
            UserException::DeviceNotAvailable => "no floating-point unit",
        };
        write!(f, "{what} at rip {rip:#x}")
    }
}
