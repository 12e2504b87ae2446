//! Opening and describing files.

use linux_raw_sys::general as linux;
use linux_raw_sys::general::stat;

use super::args::{self, Args};
use super::clock;
use super::outcome::{Outcome, done};
use crate::addr::PAGE_BYTES;
use crate::errno::Errno;
use crate::fs::{self, Attributes, CloseOnExec, Inode, LastLink, OpenRequest, Path};
use crate::mm;
use crate::task::Current;
use crate::user_memory::{UserBytes, UserPtr};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A path from the working directory.
pub(super) fn path(me: &Current, path: UserPtr<u8>) -> Result<Path, Errno> {
    Ok(Path::new(me.process(), args::read_path(path)?))
}

/// A path from the directory of that descriptor.
pub(super) fn path_at(me: &Current, dir_fd: i32, path: UserPtr<u8>) -> Result<Path, Errno> {
    let path = args::read_path(path)?;
    if path.starts_with('/') || dir_fd == linux::AT_FDCWD {
        return Ok(Path::new(me.process(), path));
    }
    Path::from_directory(&*me.process().files.lock().get(dir_fd)?, path)
}

/// What a call with these flags does with a link at the end.
pub(super) fn last_link(flags: u32) -> LastLink {
    match flags & linux::AT_SYMLINK_NOFOLLOW {
        0 => LastLink::Follow,
        _ => LastLink::Stay,
    }
}

/// What the path leads to.
pub(super) fn inode_at(
    me: &Current,
    dir_fd: i32,
    path: UserPtr<u8>,
    flags: u32,
) -> Result<Arc<Inode>, Errno> {
    if flags & linux::AT_EMPTY_PATH != 0 && args::is_empty_string(path)? {
        if dir_fd == linux::AT_FDCWD {
            return Ok(me.process().working_directory());
        }
        let file = me.process().files.lock().get(dir_fd)?;
        return file.inode().cloned().ok_or(Errno::EINVAL);
    }
    fs::inode(&path_at(me, dir_fd, path)?, last_link(flags))
}

pub(super) fn open(me: &Current, a: &Args) -> Outcome {
    open_path(me, &path(me, a.ptr(0))?, a.u32(1), a.u32(2))
}

pub(super) fn openat(me: &Current, a: &Args) -> Outcome {
    open_path(me, &path_at(me, a.i32(0), a.ptr(1))?, a.u32(2), a.u32(3))
}

pub(super) fn creat(me: &Current, a: &Args) -> Outcome {
    let flags = linux::O_CREAT | linux::O_WRONLY | linux::O_TRUNC;
    open_path(me, &path(me, a.ptr(0))?, flags, a.u32(1))
}

fn open_path(me: &Current, path: &Path, flags: u32, mode: u32) -> Outcome {
    let permissions = mode & 0o7777 & !me.process().umask();
    let request = OpenRequest::from_flags(flags)?;
    let file = fs::open(path, request, permissions)?;
    let close_on_exec = CloseOnExec::from_open_flags(flags);
    // Kept meanwhile: where there is no number left, the last reference is not dropped under the lock.
    let added = me
        .process()
        .files
        .lock()
        .insert(file.clone(), close_on_exec, 0);
    drop(file);
    added
}

pub(super) fn stat(me: &Current, a: &Args, last: LastLink) -> Outcome {
    write_stat(a.ptr(1), &fs::attributes(&path(me, a.ptr(0))?, last)?)
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
            return fs::attributes(&Path::new(me.process(), "."), LastLink::Follow);
        }
        return Ok(me.process().files.lock().get(dir_fd)?.attributes());
    }
    fs::attributes(&path_at(me, dir_fd, path)?, last_link(flags))
}

/// One time stands for all.
fn write_stat(out: UserPtr<stat>, attributes: &Attributes) -> Outcome {
    let time = clock::from_ns(attributes.modified_ns);
    done(out.write(stat {
        st_dev: 1,
        st_ino: attributes.inode,
        st_nlink: u64::from(attributes.names),
        st_mode: attributes.mode,
        st_uid: 0,
        st_gid: 0,
        __pad0: 0,
        st_rdev: attributes.device,
        st_size: attributes.size as i64,
        st_blksize: PAGE_BYTES as i64,
        st_blocks: attributes.size.div_ceil(512) as i64,
        st_atime: time.tv_sec as u64,
        st_atime_nsec: time.tv_nsec as u64,
        st_mtime: time.tv_sec as u64,
        st_mtime_nsec: time.tv_nsec as u64,
        st_ctime: time.tv_sec as u64,
        st_ctime_nsec: time.tv_nsec as u64,
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
    put(16, &attributes.names.to_ne_bytes());
    put(28, &(attributes.mode as u16).to_ne_bytes());
    put(32, &attributes.inode.to_ne_bytes());
    put(40, &attributes.size.to_ne_bytes());
    put(48, &attributes.size.div_ceil(512).to_ne_bytes());
    let time = clock::from_ns(attributes.modified_ns);
    for at in [64, 96, 112] {
        put(at, &time.tv_sec.to_ne_bytes());
        put(at + 8, &(time.tv_nsec as u32).to_ne_bytes());
    }
    put(128, &((attributes.device >> 8) as u32).to_ne_bytes());
    put(132, &((attributes.device & 0xff) as u32).to_ne_bytes());
    put(140, &1u32.to_ne_bytes());
    done(UserBytes::new(a.usize(4), BYTES)?.copy_from(&bytes))
}

/// Files are in memory: no advice makes a difference.
pub(super) fn fadvise(me: &Current, a: &Args) -> Outcome {
    done(me.process().files.lock().get(a.i32(0)))
}

pub(super) fn fallocate(me: &Current, a: &Args) -> Outcome {
    let file = me.process().files.lock().get(a.i32(0))?;
    let (offset, len) = (a.offset(2)?, a.offset(3)?);
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    match a.u32(1) {
        0 => done(file.reserve(offset.checked_add(len).ok_or(Errno::EFBIG)?)),
        // Pages come when they are written to.
        linux::FALLOC_FL_KEEP_SIZE => done(file.reserve(0)),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

pub(super) fn statfs(me: &Current, a: &Args) -> Outcome {
    fs::attributes(&path(me, a.ptr(0))?, LastLink::Follow)?;
    write_statfs(a.usize(1))
}

pub(super) fn fstatfs(me: &Current, a: &Args) -> Outcome {
    me.process().files.lock().get(a.i32(0))?;
    write_statfs(a.usize(1))
}

/// `struct statfs`: of a file system in memory, whatever the file.
fn write_statfs(out: usize) -> Outcome {
    const NAME_MAX: u64 = 255;
    let (all, free) = (
        mm::frames::capacity() as u64,
        mm::frames::free_count() as u64,
    );
    let page = PAGE_BYTES as u64;
    // Type, block size, blocks, free ones, those for everybody, files, free ones, number, longest name, block size, flags.
    let words = [
        u64::from(linux::TMPFS_MAGIC),
        page,
        all,
        free,
        free,
        0,
        0,
        0,
        NAME_MAX,
        page,
        0,
        0,
        0,
        0,
        0,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    done(UserBytes::new(out, bytes.len())?.copy_from(&bytes))
}

pub(super) fn getdents64(me: &Current, a: &Args) -> Outcome {
    let file = me.process().files.lock().get(a.i32(0))?;
    file.read_directory(UserBytes::new(a.usize(1), a.usize(2).min(1 << 20))?)
}
