//! Process groups and sessions: whom a signal or a wait is for. There is no terminal.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Pid, Process, all_processes, find_process};
use crate::errno::Errno;

/// The group and the session of a process. Each is named by the process that made it, which may be gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Belonging {
    /// The group.
    pub group: Pid,
    /// The session, which holds whole groups.
    pub session: Pid,
}

impl Belonging {
    /// A session of its own, of one group.
    pub(super) const fn alone(process: Pid) -> Self {
        Self {
            group: process,
            session: process,
        }
    }
}

/// The processes of the group, zombies among them.
pub fn members(group: Pid) -> Vec<Arc<Process>> {
    let mut found = all_processes();
    found.retain(|process| process.belonging().group == group);
    found
}

/// Moves `pid`, which is `me` or a child, into a group of the same session, or into a new one of its own.
///
/// # Errors
/// ESRCH, EPERM.
pub fn set_group(me: &Process, pid: Pid, group: Pid) -> Result<(), Errno> {
    let is_close = |it: &Arc<Process>| it.pid() == me.pid() || it.parent_pid() == me.pid().as_u32();
    let process = find_process(pid).filter(is_close).ok_or(Errno::ESRCH)?;
    let session = me.belonging().session;
    let before = process.belonging();
    let wanted = Belonging { group, session };
    let is_there = || members(group).iter().any(|it| it.belonging() == wanted);
    if before.session != session || session == pid || (group != pid && !is_there()) {
        return Err(Errno::EPERM);
    }
    process.set_belonging(wanted);
    Ok(())
}

/// Makes a session with `me` alone in it.
///
/// # Errors
/// EPERM when there is a group of its number.
pub fn start_session(me: &Process) -> Result<Pid, Errno> {
    let pid = me.pid();
    if !members(pid).is_empty() {
        return Err(Errno::EPERM);
    }
    me.set_belonging(Belonging::alone(pid));
    Ok(pid)
}
