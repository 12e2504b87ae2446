//! Reading and writing files.

use linux_raw_sys::general as linux;
use linux_raw_sys::general::iovec;
use linux_raw_sys::ioctl;

use super::args::Args;
use super::outcome::{Outcome, done};
use super::vm;
use crate::errno::Errno;
use crate::fs::{CloseOnExec, OpenFile, Whence};
use crate::mm;
use crate::task::Current;
use crate::user_memory::UserBytes;
use crate::zerocopy;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most bytes that one call transfers, as on Linux.
const MOST_BYTES: usize = 0x7fff_f000;

/// Most pieces of one gathered or scattered transfer.
const MOST_PIECES: usize = 1024;

/// `struct termios` of the console: only that it is a terminal, so that programs write line by line.
const TERMIOS: [u8; 36] = [0; 36];

/// A request of this kernel's own: a descriptor to read what syncs have stored of a file in memory. As Linux's
/// `_IO('S', 1)`.
const STORED: u32 = 0x5301;

pub(super) fn file(me: &Current, fd: i32) -> Result<Arc<OpenFile>, Errno> {
    me.process().files.lock().get(fd)
}

fn bytes_argument(address: usize, len: usize) -> Result<UserBytes, Errno> {
    UserBytes::new(address, len.min(MOST_BYTES))
}

pub(super) fn read(me: &Current, a: &Args) -> Outcome {
    let file = file(me, a.i32(0))?;
    file.read(bytes_argument(a.usize(1), a.usize(2))?)
}

pub(super) fn write(me: &Current, a: &Args) -> Outcome {
    let file = file(me, a.i32(0))?;
    file.write(bytes_argument(a.usize(1), a.usize(2))?)
}

pub(super) fn pread(me: &Current, a: &Args) -> Outcome {
    let file = file(me, a.i32(0))?;
    let offset = a.offset(3)?;
    file.read_at(bytes_argument(a.usize(1), a.usize(2))?, offset)
}

pub(super) fn pwrite(me: &Current, a: &Args) -> Outcome {
    let file = file(me, a.i32(0))?;
    let offset = a.offset(3)?;
    file.write_at(bytes_argument(a.usize(1), a.usize(2))?, offset)
}

pub(super) fn readv(me: &Current, a: &Args) -> Outcome {
    let file = file(me, a.i32(0))?;
    transfer(a, |piece| file.read(piece))
}

pub(super) fn writev(me: &Current, a: &Args) -> Outcome {
    let file = file(me, a.i32(0))?;
    let most = file.kept_together();
    if most > 0
        && let Some(parts) = short_parts(a, most)?
    {
        return file.write_together(&parts);
    }
    transfer(a, |piece| file.write(piece))
}

/// The pieces, if they have `most` bytes at most together.
fn short_parts(a: &Args, most: usize) -> Result<Option<Vec<UserBytes>>, Errno> {
    let count = a.usize(2);
    if count > MOST_PIECES {
        return Err(Errno::EINVAL);
    }
    let mut parts = Vec::new();
    parts.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    let mut room = most;
    for at in 0..count {
        let piece = a.ptr::<iovec>(1).element(at).read()?;
        let len = piece.iov_len as usize;
        let Some(left) = room.checked_sub(len) else {
            return Ok(None);
        };
        if len > 0 {
            parts.push(UserBytes::new(piece.iov_base as usize, len)?);
        }
        room = left;
    }
    Ok(Some(parts))
}

/// One piece after the other until one is short; an error counts only before the first byte.
fn transfer(a: &Args, mut one: impl FnMut(UserBytes) -> Outcome) -> Outcome {
    let count = a.usize(2);
    if count > MOST_PIECES {
        return Err(Errno::EINVAL);
    }
    let mut done = 0usize;
    for at in 0..count {
        let result = a.ptr::<iovec>(1).element(at).read().and_then(|piece| {
            if piece.iov_len as i64 <= -1 {
                return Err(Errno::EINVAL);
            }
            let room = (piece.iov_len as usize).min(MOST_BYTES - done);
            let bytes = UserBytes::new(piece.iov_base as usize, room)?;
            let part = if room == 0 { 0 } else { one(bytes)? };
            Ok((part, piece.iov_len as usize))
        });
        match result {
            Ok((part, wanted)) => {
                done += part;
                if part < wanted {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

pub(super) fn lseek(me: &Current, a: &Args) -> Outcome {
    let whence = match a.u32(2) {
        linux::SEEK_SET => Whence::Start,
        linux::SEEK_CUR => Whence::Current,
        linux::SEEK_END => Whence::End,
        _ => return Err(Errno::EINVAL),
    };
    let files = me.process().files.lock();
    files.look(a.i32(0))?.seek(a.u64(1) as i64, whence)
}

pub(super) fn sync(me: &Current, a: &Args) -> Outcome {
    done(file(me, a.i32(0))?.sync())
}

pub(super) fn sync_all() -> Outcome {
    mm::file::sync_all();
    Ok(0)
}

pub(super) fn ftruncate(me: &Current, a: &Args) -> Outcome {
    let size = a.offset(1)?;
    done(file(me, a.i32(0))?.set_size(size))
}

pub(super) fn ioctl(me: &Current, a: &Args) -> Outcome {
    let fd = a.i32(0);
    let file = file(me, fd)?;
    let files = &me.process().files;
    match a.u32(1) {
        ioctl::FIOCLEX => done(files.lock().set_close_on_exec(fd, true)),
        ioctl::FIONCLEX => done(files.lock().set_close_on_exec(fd, false)),
        ioctl::FIONBIO => {
            file.set_nonblocking(a.ptr::<u32>(2).read()? != 0);
            Ok(0)
        }
        ioctl::TCGETS if file.is_console() => {
            done(UserBytes::new(a.usize(2), TERMIOS.len())?.copy_from(&TERMIOS))
        }
        STORED => {
            let stored = file.stored()?;
            files.lock().insert(stored, CloseOnExec::Yes, 0)
        }
        number => match file.vm_object() {
            Some(object) => vm::request(me, &object, number, a.usize(2)),
            None => zero_copy(me, file, number, a.usize(2)),
        },
    }
}

/// Requests of `/dev/zerocopy`. The file is let go: who waits in one must not keep the service from ending.
fn zero_copy(me: &Current, file: Arc<OpenFile>, number: u32, argument: usize) -> Outcome {
    let service = file.service().ok_or(Errno::ENOTTY)?;
    drop(file);
    done(zerocopy::request(&service, me, number, argument))
}
