//! Moving bytes between user memory and files in bounded pieces.

use crate::errno::Errno;
use crate::task;
use crate::user_memory::UserBytes;

/// Bytes between two looks for signals.
const LOOK_BYTES: usize = 64 << 10;

/// False when a signal waits.
fn may_go_on() -> bool {
    !task::current().is_interrupted()
}

/// Copies kernel bytes to user memory. Returns how many; stops early for a signal.
pub(super) fn copy_out(to: UserBytes, bytes: &[u8]) -> Result<usize, Errno> {
    let mut done = 0;
    for piece in bytes[..bytes.len().min(to.len)].chunks(LOOK_BYTES) {
        match to.skip(done).copy_from(piece) {
            Ok(()) => done += piece.len(),
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if !may_go_on() {
            break;
        }
    }
    Ok(done)
}

/// Fills user memory with zeroes. Returns how many; stops early for a signal.
pub(super) fn zero_out(to: UserBytes) -> Result<usize, Errno> {
    let mut done = 0;
    while done < to.len {
        let piece = to.skip(done).limit(LOOK_BYTES);
        match crate::arch::uaccess::clear_user(piece.address, piece.len) {
            Ok(()) => done += piece.len,
            Err(fault) if done == 0 => return Err(fault.into()),
            Err(_) => break,
        }
        if !may_go_on() {
            break;
        }
    }
    Ok(done)
}

/// Gives user memory to `sink` in pieces of at most `PIECE` bytes, until it takes less than it is
/// given. Returns how many bytes it took; an error counts only before the first.
pub(super) fn copy_in<const PIECE: usize>(
    from: UserBytes,
    sink: impl FnMut(&[u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    copy_in_with(&mut [0; PIECE], from, sink)
}

/// The same in pieces as long as this buffer, which may be empty if nothing is to be copied.
pub(super) fn copy_in_with(
    buffer: &mut [u8],
    from: UserBytes,
    mut sink: impl FnMut(&[u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < from.len {
        let rest = from.skip(done).limit(buffer.len());
        let piece = &mut buffer[..rest.len];
        match rest.copy_to(piece).and_then(|()| sink(piece)) {
            Ok(taken) => {
                done += taken;
                if taken < rest.len {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if !may_go_on() {
            break;
        }
    }
    Ok(done)
}
