//! The console as a file: output goes to the serial port, input is always at its end.

use super::transfer::copy_in;
use crate::errno::Errno;
use crate::user_memory::UserBytes;

/// Bytes handed to the console as one piece, so that no other CPU's output lands inside a line of
/// ordinary length.
const PIECE_BYTES: usize = 1024;

/// Writes everything; output never waits longer than the port takes.
pub(super) fn write(from: UserBytes) -> Result<usize, Errno> {
    copy_in::<PIECE_BYTES>(from, |piece| {
        crate::console::write(piece);
        Ok(piece.len())
    })
}
