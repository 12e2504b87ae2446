//! What a call gives back.

use crate::errno::Errno;

/// The value for the result register, or an error.
pub(super) type Outcome = Result<usize, Errno>;

/// The outcome of a call that has nothing to tell but errors: 0.
pub(super) fn done<T>(result: Result<T, impl Into<Errno>>) -> Outcome {
    result.map(|_| 0).map_err(Into::into)
}

/// EINVAL if any of these flags is not a known one.
pub(super) fn all_known(flags: u32, known: u32) -> Result<(), Errno> {
    match flags & !known {
        0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}
