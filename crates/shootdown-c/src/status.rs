//! [`Status`]: what became of a call of C's.

use core::ffi::c_int;

/// What became of a call: SHOOTDOWN_OK, or why nothing was done.
pub type Status = c_int;

/// It was done.
pub const SHOOTDOWN_OK: Status = 0;
/// A pointer is null that must not be.
pub const SHOOTDOWN_NULL: Status = 1;
/// An argument is out of its range: a pointer that is not aligned, a size that is not the library's, a flag or a name that is not known, a buffer
/// that is too small.
pub const SHOOTDOWN_INVALID: Status = 2;
/// The object was not initialised.
pub const SHOOTDOWN_NOT_INITIALISED: Status = 3;
/// It was done before: the object is in use, the CPU has memory or is online. Or its memory was not zero at first.
pub const SHOOTDOWN_ALREADY: Status = 4;
/// There is no such CPU: its number is not below SHOOTDOWN_MAX_CPUS.
pub const SHOOTDOWN_UNKNOWN_CPU: Status = 5;
/// The running CPU has no memory: call shootdown_attach for it first.
pub const SHOOTDOWN_NO_MEMORY: Status = 6;
/// The CPU is not online.
pub const SHOOTDOWN_NOT_ONLINE: Status = 7;
/// What it takes is in use; try again.
pub const SHOOTDOWN_BUSY: Status = 8;
/// A called function must not do that.
pub const SHOOTDOWN_IN_FUNCTION: Status = 9;
/// A CPU has an address space loaded that must have left it first.
pub const SHOOTDOWN_LOADED: Status = 10;
/// The CPU has no address space loaded.
pub const SHOOTDOWN_NOT_LOADED: Status = 11;
/// The object belongs to another engine.
pub const SHOOTDOWN_OTHER_ENGINE: Status = 12;
/// A secondary TLB did not answer: it may go on using what it was told of.
pub const SHOOTDOWN_FAILED: Status = 13;

/// What is done inside, or why not.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

/// As C is told it.
pub(crate) fn status(outcome: Outcome) -> Status {
    match outcome {
        Ok(()) => SHOOTDOWN_OK,
        Err(status) => status,
    }
}
