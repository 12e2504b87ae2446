//! Calls that take a path and open nothing.

use linux_raw_sys::general as linux;

use super::args::{self, Args};
use super::files::path_at;
use super::outcome::{Outcome, done};
use crate::errno::Errno;
use crate::fs::{self, Kind};
use crate::task::Current;
use crate::user_memory::UserBytes;

pub(super) fn access(a: &Args) -> Outcome {
    check_access(&args::read_path(a.ptr(0))?, a.u32(1))
}

pub(super) fn faccessat(me: &Current, a: &Args) -> Outcome {
    check_access(&path_at(me, a.i32(0), a.ptr(1))?, a.u32(2))
}

fn check_access(path: &str, wanted: u32) -> Outcome {
    const EXECUTE: u32 = 1;
    const WRITE: u32 = 2;
    if wanted > 7 {
        return Err(Errno::EINVAL);
    }
    let attributes = fs::attributes(path)?;
    let any = |bits: u32| attributes.mode & bits != 0;
    match () {
        () if wanted & EXECUTE != 0 && !any(0o111) => Err(Errno::EACCES),
        () if wanted & WRITE != 0 && !any(0o222) => Err(Errno::EROFS),
        () => Ok(0),
    }
}

pub(super) fn readlink(me: &Current, a: &Args) -> Outcome {
    let path = args::read_path(a.ptr(0))?;
    write_link(me, &path, a.usize(1), a.i32(2))
}

pub(super) fn readlinkat(me: &Current, a: &Args) -> Outcome {
    let path = path_at(me, a.i32(0), a.ptr(1))?;
    write_link(me, &path, a.usize(2), a.i32(3))
}

/// Without terminator, cut to the buffer.
fn write_link(me: &Current, path: &str, out: usize, len: i32) -> Outcome {
    if len <= 0 {
        return Err(Errno::EINVAL);
    }
    let target = fs::read_link(me.process(), path)?;
    let bytes = &target.as_bytes()[..target.len().min(len as usize)];
    UserBytes::new(out, bytes.len())?.copy_from(bytes)?;
    Ok(bytes.len())
}

pub(super) fn getcwd(a: &Args) -> Outcome {
    const ROOT: &[u8] = b"/\0";
    if a.usize(1) < ROOT.len() {
        return Err(Errno::ERANGE);
    }
    UserBytes::new(a.usize(0), ROOT.len())?.copy_from(ROOT)?;
    Ok(ROOT.len())
}

/// The current directory is always the root: only going there works.
pub(super) fn chdir(a: &Args) -> Outcome {
    let path = fs::normalise(&args::read_path(a.ptr(0))?);
    match fs::attributes(&path)?.kind() {
        Kind::Directory if path == "/" => Ok(0),
        Kind::Directory => Err(Errno::EACCES),
        _ => Err(Errno::ENOTDIR),
    }
}

/// Nothing can be created; what is there says so.
pub(super) fn mkdir(a: &Args) -> Outcome {
    match fs::attributes(&args::read_path(a.ptr(0))?) {
        Ok(_) => Err(Errno::EEXIST),
        Err(_) => Err(Errno::EROFS),
    }
}

pub(super) fn truncate(a: &Args) -> Outcome {
    let size = a.offset(1)?;
    done(fs::set_size(&args::read_path(a.ptr(0))?, size))
}

pub(super) fn unlink(a: &Args) -> Outcome {
    done(fs::remove(&args::read_path(a.ptr(0))?))
}

pub(super) fn unlinkat(me: &Current, a: &Args) -> Outcome {
    let path = path_at(me, a.i32(0), a.ptr(1))?;
    match a.u32(2) {
        0 => done(fs::remove(&path)),
        linux::AT_REMOVEDIR => match fs::attributes(&path)?.kind() {
            Kind::Directory => Err(Errno::EROFS),
            _ => Err(Errno::ENOTDIR),
        },
        _ => Err(Errno::EINVAL),
    }
}

/// Programs that are the first process on Linux mount these; here they are always there.
pub(super) fn mount(a: &Args) -> Outcome {
    let target = fs::normalise(&args::read_path(a.ptr(1))?);
    let kind = args::read_path(a.ptr(2))?;
    let built_in = matches!(
        (kind.as_str(), target.as_str()),
        ("proc", "/proc") | ("sysfs", "/sys") | ("devtmpfs", "/dev") | ("tmpfs", "/tmp")
    );
    if built_in { Ok(0) } else { Err(Errno::ENODEV) }
}
