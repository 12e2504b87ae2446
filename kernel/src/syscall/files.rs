//! Opening and describing files.

use linux_raw_sys::general as linux;
use linux_raw_sys::general::stat;

use super::args::{self, Args};
use super::outcome::{Outcome, done};
use crate::addr::PAGE_BYTES;
use crate::errno::Errno;
use crate::fs::{self, Attributes, CloseOnExec, OpenRequest};
use crate::task::Current;
use crate::user_memory::{UserBytes, UserPtr};
use alloc::string::String;

/// Directory descriptors are not tracked: a relative path starts at the root directory whatever
/// the descriptor, which must be the current directory or an open one.
pub(super) fn path_at(me: &Current, dir_fd: i32, path: UserPtr<u8>) -> Result<String, Errno> {
    let path = args::read_path(path)?;
    if !path.starts_with('/') && dir_fd != linux::AT_FDCWD {
        let dir = me.process().files.lock().get(dir_fd)?;
        let base = dir.directory_path().ok_or(Errno::ENOTDIR)?;
        return Ok(fs::join(&base, &path));
    }
    Ok(path)
}

pub(super) fn open(me: &Current, a: &Args) -> Outcome {
    open_path(me, &args::read_path(a.ptr(0))?, a.u32(1), a.u32(2))
}

pub(super) fn openat(me: &Current, a: &Args) -> Outcome {
    open_path(me, &path_at(me, a.i32(0), a.ptr(1))?, a.u32(2), a.u32(3))
}

pub(super) fn creat(me: &Current, a: &Args) -> Outcome {
    let flags = linux::O_CREAT | linux::O_WRONLY | linux::O_TRUNC;
    open_path(me, &args::read_path(a.ptr(0))?, flags, a.u32(1))
}

fn open_path(me: &Current, path: &str, flags: u32, mode: u32) -> Outcome {
    let permissions = mode & 0o777;
    let request = OpenRequest::from_flags(flags)?;
    let file = fs::open(me.process(), path, request, permissions)?;
    let close_on_exec = CloseOnExec::from_open_flags(flags);
    me.process().files.lock().insert(file, close_on_exec, 0)
}

pub(super) fn stat(a: &Args) -> Outcome {
    write_stat(a.ptr(1), &fs::attributes(&args::read_path(a.ptr(0))?)?)
}

pub(super) fn fstat(me: &Current, a: &Args) -> Outcome {
    let file = me.process().files.lock().get(a.i32(0))?;
    write_stat(a.ptr(1), &file.attributes())
}

pub(super) fn newfstatat(me: &Current, a: &Args) -> Outcome {
    write_stat(a.ptr(2), &attributes_at(me, a.i32(0), a.ptr(1), a.u32(3))?)
}

fn attributes_at(
    me: &Current,
    dir_fd: i32,
    path: UserPtr<u8>,
    flags: u32,
) -> Result<Attributes, Errno> {
    if flags & linux::AT_EMPTY_PATH != 0 && args::is_empty_string(path)? {
        if dir_fd == linux::AT_FDCWD {
            return fs::attributes("/");
        }
        return Ok(me.process().files.lock().get(dir_fd)?.attributes());
    }
    fs::attributes(&path_at(me, dir_fd, path)?)
}

fn write_stat(out: UserPtr<stat>, attributes: &Attributes) -> Outcome {
    done(out.write(stat {
        st_dev: 1,
        st_ino: attributes.inode,
        st_nlink: 1,
        st_mode: attributes.mode,
        st_uid: 0,
        st_gid: 0,
        __pad0: 0,
        st_rdev: attributes.device,
        st_size: attributes.size as i64,
        st_blksize: PAGE_BYTES as i64,
        st_blocks: attributes.size.div_ceil(512) as i64,
        st_atime: 0,
        st_atime_nsec: 0,
        st_mtime: 0,
        st_mtime_nsec: 0,
        st_ctime: 0,
        st_ctime_nsec: 0,
        __unused: [0; 3],
    }))
}

/// `struct statx`, of which only the first 144 bytes are ever not zero.
pub(super) fn statx(me: &Current, a: &Args) -> Outcome {
    const BYTES: usize = 256;
    let attributes = attributes_at(me, a.i32(0), a.ptr(1), a.u32(2))?;
    let mut bytes = [0; BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &linux::STATX_BASIC_STATS.to_ne_bytes());
    put(4, &(PAGE_BYTES as u32).to_ne_bytes());
    put(16, &1u32.to_ne_bytes());
    put(28, &(attributes.mode as u16).to_ne_bytes());
    put(32, &attributes.inode.to_ne_bytes());
    put(40, &attributes.size.to_ne_bytes());
    put(48, &attributes.size.div_ceil(512).to_ne_bytes());
    put(128, &((attributes.device >> 8) as u32).to_ne_bytes());
    put(132, &((attributes.device & 0xff) as u32).to_ne_bytes());
    put(140, &1u32.to_ne_bytes());
    done(UserBytes::new(a.usize(4), BYTES)?.copy_from(&bytes))
}

pub(super) fn getdents64(me: &Current, a: &Args) -> Outcome {
    let file = me.process().files.lock().get(a.i32(0))?;
    file.read_directory(UserBytes::new(a.usize(1), a.usize(2).min(1 << 20))?)
}
