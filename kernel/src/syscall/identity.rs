//! Who am I: there is one user, root.

use alloc::sync::Arc;

use super::args::Args;
use super::outcome::{Outcome, done};
use crate::errno::Errno;
use crate::task::{self, Current, Pid, Process};

pub(super) fn getpid(me: &Current) -> Outcome {
    Ok(me.process().pid().as_u32() as usize)
}

pub(super) fn gettid(me: &Current) -> Outcome {
    Ok(me.tid().as_u32() as usize)
}

pub(super) fn getppid(me: &Current) -> Outcome {
    Ok(me.process().parent_pid() as usize)
}

/// The process that a call means: the caller for 0.
fn process(me: &Current, pid: i32) -> Result<Arc<Process>, Errno> {
    match pid {
        0 => Ok(me.process().clone()),
        pid => task::find_process(Pid::new(pid as u32)).ok_or(Errno::ESRCH),
    }
}

pub(super) fn getpgrp(me: &Current) -> Outcome {
    Ok(me.process().belonging().group.as_u32() as usize)
}

pub(super) fn getpgid(me: &Current, a: &Args) -> Outcome {
    let process = process(me, a.i32(0))?;
    Ok(process.belonging().group.as_u32() as usize)
}

pub(super) fn getsid(me: &Current, a: &Args) -> Outcome {
    let process = process(me, a.i32(0))?;
    Ok(process.belonging().session.as_u32() as usize)
}

pub(super) fn setpgid(me: &Current, a: &Args) -> Outcome {
    let pid = match a.u32(0) {
        0 => me.process().pid(),
        pid => Pid::new(pid),
    };
    let group = match a.i32(1) {
        0 => pid,
        group => Pid::new(u32::try_from(group).map_err(|_| Errno::EINVAL)?),
    };
    done(task::set_group(me.process(), pid, group))
}

pub(super) fn setsid(me: &Current) -> Outcome {
    Ok(task::start_session(me.process())?.as_u32() as usize)
}
