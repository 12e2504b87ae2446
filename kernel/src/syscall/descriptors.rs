//! File descriptors: closing, copying, flags, pipes, event counters, files without names.

use linux_raw_sys::general as linux;

use super::args::{self, Args};
use super::outcome::{Outcome, all_known, done};
use crate::errno::Errno;
use crate::fs::record_locks::{self, Lock, Record};
use crate::fs::{self, CloseOnExec, OpenFile, Reading, Whence};
use crate::task::Current;
use core::ops::Range;

pub(super) fn close(me: &Current, a: &Args) -> Outcome {
    let file = me.process().files.lock().remove(a.i32(0))?;
    record_locks::closed(&file, me.process().pid());
    // The last reference may wake others: not under the lock.
    drop(file);
    Ok(0)
}

pub(super) fn dup(me: &Current, a: &Args) -> Outcome {
    let mut files = me.process().files.lock();
    let file = files.get(a.i32(0))?;
    files.insert(file, CloseOnExec::No, 0)
}

pub(super) fn dup2(me: &Current, a: &Args) -> Outcome {
    if a.i32(0) == a.i32(1) {
        me.process().files.lock().get(a.i32(0))?;
        return Ok(a.i32(1) as usize);
    }
    replace(me, a.i32(0), a.i32(1), CloseOnExec::No)
}

pub(super) fn dup3(me: &Current, a: &Args) -> Outcome {
    let flags = a.u32(2);
    all_known(flags, linux::O_CLOEXEC)?;
    if a.i32(0) == a.i32(1) {
        return Err(Errno::EINVAL);
    }
    replace(me, a.i32(0), a.i32(1), CloseOnExec::from_open_flags(flags))
}

fn replace(me: &Current, from: i32, to: i32, close_on_exec: CloseOnExec) -> Outcome {
    let mut files = me.process().files.lock();
    let file = files.get(from)?;
    let old = files.replace(to, file, close_on_exec)?;
    drop(files);
    if let Some(old) = old {
        record_locks::closed(&old, me.process().pid());
    }
    Ok(to as usize)
}

pub(super) fn fcntl(me: &Current, a: &Args) -> Outcome {
    let fd = a.i32(0);
    if matches!(a.u32(1), linux::F_GETLK | linux::F_SETLK | linux::F_SETLKW) {
        let file = me.process().files.lock().get(fd)?;
        return record_lock(me, &file, a);
    }
    let mut files = me.process().files.lock();
    let file = files.get(fd)?;
    match a.u32(1) {
        linux::F_DUPFD => files.insert(file, CloseOnExec::No, a.usize(2)),
        linux::F_DUPFD_CLOEXEC => files.insert(file, CloseOnExec::Yes, a.usize(2)),
        linux::F_GETFD => Ok(usize::from(files.close_on_exec(fd)?)),
        linux::F_SETFD => done(files.set_close_on_exec(fd, a.u32(2) & linux::FD_CLOEXEC != 0)),
        linux::F_GETFL => Ok(file.status_flags() as usize),
        linux::F_SETFL => {
            file.set_nonblocking(a.u32(2) & linux::O_NONBLOCK != 0);
            file.set_appending(a.u32(2) & linux::O_APPEND != 0);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `struct flock`: type and origin in the first word, start, length, and a process.
type Flock = [u64; 4];

fn record_lock(me: &Current, file: &OpenFile, a: &Args) -> Outcome {
    let owner = me.process().pid();
    let argument = a.ptr::<Flock>(2);
    let [how, start, len, _] = argument.read()?;
    let (kind, whence) = (how as u16, (how >> 16) as u16);
    let origin = match u32::from(whence) {
        linux::SEEK_SET => 0,
        linux::SEEK_CUR => file.seek(0, Whence::Current)? as i64,
        linux::SEEK_END => file.attributes().size as i64,
        _ => return Err(Errno::EINVAL),
    };
    let bytes = locked_bytes(origin.checked_add(start as i64), len as i64)?;
    let inode = file.inode().ok_or(Errno::EBADF)?;
    let lock = match u32::from(kind) {
        linux::F_RDLCK => Lock::Shared,
        linux::F_WRLCK => Lock::Exclusive,
        linux::F_UNLCK if a.u32(1) != linux::F_GETLK => {
            return done(record_locks::unlock(inode, owner, &bytes));
        }
        _ => return Err(Errno::EINVAL),
    };
    let wanted = Record { owner, bytes, lock };
    if a.u32(1) == linux::F_GETLK {
        return done(
            argument.write(match record_locks::conflict(inode, &wanted) {
                Some(other) => flock(&other),
                None => [how & !0xffff | u64::from(linux::F_UNLCK), start, len, 0],
            }),
        );
    }
    match lock {
        Lock::Shared => file.may_read()?,
        Lock::Exclusive if file.is_read_only() => return Err(Errno::EBADF),
        Lock::Exclusive => {}
    }
    done(record_locks::lock(
        inode,
        &wanted,
        a.u32(1) == linux::F_SETLKW,
    ))
}

/// The bytes from `start` on, to the end of all for length 0; those before it for a negative one.
fn locked_bytes(start: Option<i64>, len: i64) -> Result<Range<u64>, Errno> {
    let start = start.ok_or(Errno::EOVERFLOW)?;
    let (first, end) = match len {
        0 => (start, i64::MAX),
        1.. => (start, start.checked_add(len).ok_or(Errno::EOVERFLOW)?),
        _ => (start.checked_add(len).ok_or(Errno::EINVAL)?, start),
    };
    let first = u64::try_from(first).map_err(|_| Errno::EINVAL)?;
    let end = if end == i64::MAX {
        u64::MAX
    } else {
        end as u64
    };
    Ok(first..end)
}

fn flock(record: &Record) -> Flock {
    let kind = match record.lock {
        Lock::Shared => linux::F_RDLCK,
        Lock::Exclusive => linux::F_WRLCK,
    };
    let Range { start, end } = record.bytes;
    let len = if end == u64::MAX { 0 } else { end - start };
    [
        u64::from(kind),
        start,
        len,
        u64::from(record.owner.as_u32()),
    ]
}

pub(super) fn pipe(me: &Current, a: &Args) -> Outcome {
    make_pipe(me, a, 0)
}

pub(super) fn pipe2(me: &Current, a: &Args) -> Outcome {
    let flags = a.u32(1);
    all_known(flags, linux::O_CLOEXEC | linux::O_NONBLOCK)?;
    make_pipe(me, a, flags)
}

fn make_pipe(me: &Current, a: &Args, flags: u32) -> Outcome {
    let (reader, writer) = fs::new_pipe(flags & linux::O_NONBLOCK != 0)?;
    let close_on_exec = CloseOnExec::from_open_flags(flags);
    let files = &me.process().files;
    let read_fd = files.lock().insert(reader, close_on_exec, 0)? as i32;
    let write_fd = files.lock().insert(writer, close_on_exec, 0);
    let told = write_fd.and_then(|write_fd| {
        let told = a.ptr(0).write([read_fd, write_fd as i32]);
        told.inspect_err(|_| drop(files.lock().remove(write_fd as i32)))
    });
    done(told.inspect_err(|_| drop(files.lock().remove(read_fd))))
}

pub(super) fn eventfd(me: &Current, a: &Args) -> Outcome {
    make_event(me, a.u32(0), 0)
}

pub(super) fn eventfd2(me: &Current, a: &Args) -> Outcome {
    make_event(me, a.u32(0), a.u32(1))
}

fn make_event(me: &Current, value: u32, flags: u32) -> Outcome {
    // The first two are those of `open`.
    let known = linux::EFD_CLOEXEC | linux::EFD_NONBLOCK | linux::EFD_SEMAPHORE;
    all_known(flags, known)?;
    let reading = match flags & linux::EFD_SEMAPHORE {
        0 => Reading::All,
        _ => Reading::One,
    };
    let event = fs::new_event(value, reading, flags & linux::O_NONBLOCK != 0)?;
    let close_on_exec = CloseOnExec::from_open_flags(flags);
    me.process().files.lock().insert(event, close_on_exec, 0)
}

pub(super) fn memfd_create(me: &Current, a: &Args) -> Outcome {
    let flags = a.u32(1);
    // Sealing is not there: MFD_ALLOW_SEALING says only that it would be allowed.
    let known = linux::MFD_CLOEXEC | linux::MFD_ALLOW_SEALING | linux::MFD_NOEXEC_SEAL;
    all_known(flags, known)?;
    let name = args::read_name(a.ptr(0))?;
    let file = fs::new_memory_file(&name)?;
    let close_on_exec = CloseOnExec::if_set(flags & linux::MFD_CLOEXEC);
    me.process().files.lock().insert(file, close_on_exec, 0)
}
