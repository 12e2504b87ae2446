//! What a call gives back.

use crate::errno::Errno;

/// The value for the result register, or an error.
pub(super) type Outcome = Result<usize, Errno>;
