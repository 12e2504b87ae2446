//! Reading and writing files in memory by system call.

use super::transfer::copy_in;
use crate::errno::Errno;
use crate::mm::MemoryFile;
use crate::mm::file::Copy;
use crate::syscall::args::UserBytes;
use crate::task;

/// Bytes moved at a time: they pass through the stack, because user memory must not be touched under a spin lock.
const PIECE_BYTES: usize = 512;

/// Copies bytes of one of the copies from `offset` on; how many. Stops early for a signal.
pub(super) fn read(
    file: &MemoryFile,
    copy: Copy,
    offset: u64,
    to: UserBytes,
) -> Result<usize, Errno> {
    let mut piece = [0; PIECE_BYTES];
    let mut done = 0;
    while done < to.len {
        let room = piece.len().min(to.len - done);
        let found = file.read(copy, offset.saturating_add(done as u64), &mut piece[..room]);
        if found == 0 {
            break;
        }
        match to.skip(done).copy_from(&piece[..found]) {
            Ok(()) => done += found,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if task::current().is_interrupted() {
            break;
        }
    }
    Ok(done)
}

/// Copies bytes to `offset`, or to the end of the file without one; how many, and the offset behind them. No other
/// write comes in between. Stops early for a signal.
///
/// # Errors
/// EFBIG, ENOSPC, ENOMEM and EFAULT, each before the first byte.
pub(super) fn write(
    file: &MemoryFile,
    offset: Option<u64>,
    from: UserBytes,
) -> Result<(usize, u64), Errno> {
    let change = file.change();
    let start = offset.unwrap_or_else(|| change.size());
    let mut at = start;
    let done = copy_in::<PIECE_BYTES>(from, |bytes| {
        let written = change.write(at, bytes)?;
        at += written as u64;
        Ok(written)
    })?;
    Ok((done, start + done as u64))
}
