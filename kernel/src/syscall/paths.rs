//! Calls that take a path and open nothing.

use linux_raw_sys::general as linux;
use linux_raw_sys::general::__kernel_timespec;

use super::args::{self, Args};
use super::clock;
use super::files::{inode_at, last_link, path, path_at};
use super::outcome::{Outcome, all_known, done};
use crate::errno::Errno;
use crate::fs::{self, LastLink, NewName, Path};
use crate::task::Current;
use crate::time;
use crate::user_memory::UserBytes;

pub(super) fn access(me: &Current, a: &Args) -> Outcome {
    check_access(&path(me, a.ptr(0))?, a.u32(1))
}

pub(super) fn faccessat(me: &Current, a: &Args) -> Outcome {
    check_access(&path_at(me, a.i32(0), a.ptr(1))?, a.u32(2))
}

/// Everybody is the superuser, to whom all may be read and written.
fn check_access(path: &Path, wanted: u32) -> Outcome {
    const EXECUTE: u32 = 1;
    if wanted > 7 {
        return Err(Errno::EINVAL);
    }
    let attributes = fs::attributes(path, LastLink::Follow)?;
    match wanted & EXECUTE != 0 && attributes.mode & 0o111 == 0 {
        true => Err(Errno::EACCES),
        false => Ok(0),
    }
}

pub(super) fn readlink(me: &Current, a: &Args) -> Outcome {
    write_link(&path(me, a.ptr(0))?, a.usize(1), a.i32(2))
}

pub(super) fn readlinkat(me: &Current, a: &Args) -> Outcome {
    write_link(&path_at(me, a.i32(0), a.ptr(1))?, a.usize(2), a.i32(3))
}

/// Without terminator, cut to the buffer.
fn write_link(path: &Path, out: usize, len: i32) -> Outcome {
    if len <= 0 {
        return Err(Errno::EINVAL);
    }
    let target = fs::read_link(path)?;
    let bytes = &target.as_bytes()[..target.len().min(len as usize)];
    UserBytes::new(out, bytes.len())?.copy_from(bytes)?;
    Ok(bytes.len())
}

pub(super) fn getcwd(me: &Current, a: &Args) -> Outcome {
    let mut path = fs::path_of(&me.process().working_directory())?;
    path.push('\0');
    if a.usize(1) < path.len() {
        return Err(Errno::ERANGE);
    }
    UserBytes::new(a.usize(0), path.len())?.copy_from(path.as_bytes())?;
    Ok(path.len())
}

pub(super) fn chdir(me: &Current, a: &Args) -> Outcome {
    let directory = fs::find_directory(&path(me, a.ptr(0))?)?;
    me.process().set_working_directory(directory);
    Ok(0)
}

pub(super) fn fchdir(me: &Current, a: &Args) -> Outcome {
    let file = me.process().files.lock().get(a.i32(0))?;
    let directory = file.directory().ok_or(Errno::ENOTDIR)?;
    me.process().set_working_directory(directory.clone());
    Ok(0)
}

pub(super) fn mkdir(me: &Current, a: &Args) -> Outcome {
    make_directory(me, &path(me, a.ptr(0))?, a.u32(1))
}

pub(super) fn mkdirat(me: &Current, a: &Args) -> Outcome {
    make_directory(me, &path_at(me, a.i32(0), a.ptr(1))?, a.u32(2))
}

fn make_directory(me: &Current, path: &Path, mode: u32) -> Outcome {
    let permissions = mode & !me.process().umask();
    done(fs::make_directory(path, permissions))
}

pub(super) fn rmdir(me: &Current, a: &Args) -> Outcome {
    done(fs::remove_directory(&path(me, a.ptr(0))?))
}

pub(super) fn truncate(me: &Current, a: &Args) -> Outcome {
    let size = a.offset(1)?;
    done(fs::set_size(&path(me, a.ptr(0))?, size))
}

pub(super) fn unlink(me: &Current, a: &Args) -> Outcome {
    done(fs::remove(&path(me, a.ptr(0))?))
}

pub(super) fn unlinkat(me: &Current, a: &Args) -> Outcome {
    let path = path_at(me, a.i32(0), a.ptr(1))?;
    match a.u32(2) {
        0 => done(fs::remove(&path)),
        linux::AT_REMOVEDIR => done(fs::remove_directory(&path)),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn rename(me: &Current, a: &Args) -> Outcome {
    let (from, to) = (path(me, a.ptr(0))?, path(me, a.ptr(1))?);
    done(fs::rename(&from, &to, NewName::Replace))
}

pub(super) fn renameat(me: &Current, a: &Args) -> Outcome {
    rename_as(me, a, NewName::Replace)
}

pub(super) fn renameat2(me: &Current, a: &Args) -> Outcome {
    rename_as(
        me,
        a,
        match a.u32(4) {
            0 => NewName::Replace,
            linux::RENAME_NOREPLACE => NewName::MustBeFree,
            linux::RENAME_EXCHANGE => NewName::Exchange,
            _ => return Err(Errno::EINVAL),
        },
    )
}

fn rename_as(me: &Current, a: &Args, new_name: NewName) -> Outcome {
    let from = path_at(me, a.i32(0), a.ptr(1))?;
    let to = path_at(me, a.i32(2), a.ptr(3))?;
    done(fs::rename(&from, &to, new_name))
}

pub(super) fn link(me: &Current, a: &Args) -> Outcome {
    let (from, to) = (path(me, a.ptr(0))?, path(me, a.ptr(1))?);
    done(fs::add_name(&from, LastLink::Stay, &to))
}

pub(super) fn linkat(me: &Current, a: &Args) -> Outcome {
    all_known(a.u32(4), linux::AT_SYMLINK_FOLLOW)?;
    let last = match a.u32(4) {
        0 => LastLink::Stay,
        _ => LastLink::Follow,
    };
    let from = path_at(me, a.i32(0), a.ptr(1))?;
    let to = path_at(me, a.i32(2), a.ptr(3))?;
    done(fs::add_name(&from, last, &to))
}

pub(super) fn symlink(me: &Current, a: &Args) -> Outcome {
    let target = args::read_path(a.ptr(0))?;
    done(fs::make_link(&target, &path(me, a.ptr(1))?))
}

pub(super) fn symlinkat(me: &Current, a: &Args) -> Outcome {
    let target = args::read_path(a.ptr(0))?;
    done(fs::make_link(&target, &path_at(me, a.i32(1), a.ptr(2))?))
}

pub(super) fn chmod(me: &Current, a: &Args) -> Outcome {
    fs::inode(&path(me, a.ptr(0))?, LastLink::Follow)?.set_permissions(a.u32(1));
    Ok(0)
}

pub(super) fn fchmodat(me: &Current, a: &Args) -> Outcome {
    inode_at(me, a.i32(0), a.ptr(1), 0)?.set_permissions(a.u32(2));
    Ok(0)
}

pub(super) fn fchmod(me: &Current, a: &Args) -> Outcome {
    let file = me.process().files.lock().get(a.i32(0))?;
    if let Some(inode) = file.inode() {
        inode.set_permissions(a.u32(1));
    }
    Ok(0)
}

/// Everything is the superuser's: other owners are refused.
pub(super) fn chown(me: &Current, a: &Args) -> Outcome {
    fs::attributes(&path(me, a.ptr(0))?, LastLink::Follow)?;
    check_owner(a.u32(1), a.u32(2))
}

pub(super) fn lchown(me: &Current, a: &Args) -> Outcome {
    fs::attributes(&path(me, a.ptr(0))?, LastLink::Stay)?;
    check_owner(a.u32(1), a.u32(2))
}

pub(super) fn fchown(me: &Current, a: &Args) -> Outcome {
    me.process().files.lock().get(a.i32(0))?;
    check_owner(a.u32(1), a.u32(2))
}

pub(super) fn fchownat(me: &Current, a: &Args) -> Outcome {
    inode_at(me, a.i32(0), a.ptr(1), a.u32(4))?;
    check_owner(a.u32(2), a.u32(3))
}

fn check_owner(user: u32, group: u32) -> Outcome {
    const UNCHANGED: u32 = u32::MAX;
    match [user, group].iter().all(|id| matches!(*id, 0 | UNCHANGED)) {
        true => Ok(0),
        false => Err(Errno::EPERM),
    }
}

pub(super) fn utimensat(me: &Current, a: &Args) -> Outcome {
    const TIMES: u32 = 2;
    let times = a.ptr::<__kernel_timespec>(2);
    let modified = match times.is_null() {
        true => Some(time::realtime_ns()),
        false => modified_ns(times.element(TIMES as usize - 1).read()?)?,
    };
    let inode = match a.ptr::<u8>(1).is_null() {
        true => {
            let file = me.process().files.lock().get(a.i32(0))?;
            file.inode().ok_or(Errno::EINVAL)?.clone()
        }
        false => fs::inode(&path_at(me, a.i32(0), a.ptr(1))?, last_link(a.u32(3)))?,
    };
    if let Some(at_ns) = modified {
        inode.set_modified(at_ns);
    }
    Ok(0)
}

/// `None` leaves it alone.
fn modified_ns(wanted: __kernel_timespec) -> Result<Option<u64>, Errno> {
    match wanted.tv_nsec as u32 {
        linux::UTIME_NOW => Ok(Some(time::realtime_ns())),
        linux::UTIME_OMIT => Ok(None),
        _ => clock::to_ns(wanted).map(Some),
    }
}

/// Programs that are the first process on Linux mount these; here they are always there.
pub(super) fn mount(me: &Current, a: &Args) -> Outcome {
    let target = fs::path_of(&*fs::find_directory(&path(me, a.ptr(1))?)?)?;
    let kind = args::read_path(a.ptr(2))?;
    let built_in = matches!(
        (kind.as_str(), target.as_str()),
        ("proc", "/proc")
            | ("sysfs", "/sys")
            | ("devtmpfs", "/dev")
            | ("tmpfs", "/tmp" | "/dev/shm" | "/run")
    );
    if built_in { Ok(0) } else { Err(Errno::ENODEV) }
}
