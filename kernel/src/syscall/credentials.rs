//! What a process may do, and how its files and turns are to be: there is one user, root, who may do everything.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::args::Args;
use super::outcome::Outcome;
use crate::errno::Errno;
use crate::task::{self, Current, Pid, Process, Tid};

/// All capabilities there are in Linux 6.12.
const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

/// Leaves a number as it is.
const UNCHANGED: u32 = u32::MAX;

pub(super) fn get_three(a: &Args) -> Outcome {
    (0..3).try_for_each(|at| a.ptr::<u32>(at).write(0))?;
    Ok(0)
}

/// `setuid` and its like, with so many numbers: there is no other user to become.
pub(super) fn set(a: &Args, numbers: usize) -> Outcome {
    let is_root = |at| a.u32(at) == 0 || (numbers > 1 && a.u32(at) == UNCHANGED);
    match (0..numbers).all(is_root) {
        true => Ok(0),
        false if numbers == 1 && a.u32(0) == UNCHANGED => Err(Errno::EINVAL),
        false => Err(Errno::EPERM),
    }
}

pub(super) fn getgroups(a: &Args) -> Outcome {
    match a.i32(0) {
        ..0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

pub(super) fn setgroups(a: &Args) -> Outcome {
    match a.i32(0) {
        0 => Ok(0),
        _ => Err(Errno::EPERM),
    }
}

/// The version that the caller knows: how many words each set has. Others are told the newest one.
fn capability_words(a: &Args) -> Result<usize, Errno> {
    let header = a.ptr::<u32>(0);
    match header.read()? {
        linux::_LINUX_CAPABILITY_VERSION_1 => Ok(1),
        linux::_LINUX_CAPABILITY_VERSION_2 | linux::_LINUX_CAPABILITY_VERSION_3 => Ok(2),
        _ => {
            header.write(linux::_LINUX_CAPABILITY_VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

pub(super) fn capget(me: &Current, a: &Args) -> Outcome {
    let words = match capability_words(a) {
        // The question was only for the version.
        Err(Errno::EINVAL) if a.usize(1) == 0 => return Ok(0),
        words => words?,
    };
    let pid = a.ptr::<u32>(0).element(1).read()?;
    let kept = match pid {
        0 => me.process().capabilities(),
        pid => {
            let thread = task::find_thread(Tid::new(pid)).ok_or(Errno::ESRCH)?;
            thread.process().capabilities()
        }
    };
    for at in 0..words {
        let bits = ((kept & ALL_CAPABILITIES) >> (32 * at)) as u32;
        // In force, permitted, inherited.
        a.ptr(1).element(at).write([bits, bits, 0])?;
    }
    Ok(0)
}

/// What is given up is gone, and told so; nothing here asks for any of it. Permitted and in force are the same.
pub(super) fn capset(me: &Current, a: &Args) -> Outcome {
    let process = me.process();
    let mut wanted = 0;
    for at in 0..capability_words(a)? {
        let [in_force, permitted, _] = a.ptr::<[u32; 3]>(1).element(at).read()?;
        if in_force & !permitted != 0 {
            return Err(Errno::EPERM);
        }
        wanted |= u64::from(permitted) << (32 * at);
    }
    if wanted & ALL_CAPABILITIES & !process.capabilities() != 0 {
        return Err(Errno::EPERM);
    }
    process.keep_capabilities(wanted);
    Ok(0)
}

pub(super) fn personality(a: &Args) -> Outcome {
    match a.u32(0) {
        0 | u32::MAX => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn umask(me: &Current, a: &Args) -> Outcome {
    Ok(me.process().set_umask(a.u32(0)) as usize)
}

/// The processes that a priority is for: one, a group, or all of the one user.
fn processes(me: &Current, a: &Args) -> Result<Vec<Arc<Process>>, Errno> {
    let own = me.process();
    let found = match (a.u32(0), a.u32(1)) {
        (linux::PRIO_PROCESS, 0) => alloc::vec![own.clone()],
        (linux::PRIO_PROCESS, tid) => {
            let thread = task::find_thread(Tid::new(tid)).ok_or(Errno::ESRCH)?;
            alloc::vec![thread.process().clone()]
        }
        (linux::PRIO_PGRP, 0) => task::members(own.belonging().group),
        (linux::PRIO_PGRP, group) => task::members(Pid::new(group)),
        (linux::PRIO_USER, 0) => task::all_processes(),
        (linux::PRIO_USER, _) => Vec::new(),
        _ => return Err(Errno::EINVAL),
    };
    match found.is_empty() {
        true => Err(Errno::ESRCH),
        false => Ok(found),
    }
}

/// 20 less how nice the least nice one is: no error looks like it.
pub(super) fn getpriority(me: &Current, a: &Args) -> Outcome {
    let urgency = |process: &Arc<Process>| (20 - process.nice()) as usize;
    let most = processes(me, a)?.iter().map(urgency).max();
    Ok(most.unwrap_or(20))
}

/// Kept, inherited and told; all take equal turns.
pub(super) fn setpriority(me: &Current, a: &Args) -> Outcome {
    for process in processes(me, a)? {
        process.set_nice(a.i32(2));
    }
    Ok(0)
}
