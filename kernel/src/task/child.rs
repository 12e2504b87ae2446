//! Waiting for children.

use super::process::{ExitStatus, NoSuchChild};
use super::{Current, Pid};
use crate::errno::Errno;

/// Which child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// Whichever ends first.
    AnyChild,
    /// This one.
    Child(Pid),
    /// Whichever ends first of this group.
    Group(Pid),
}

impl From<NoSuchChild> for Errno {
    fn from(_: NoSuchChild) -> Self {
        Self::ECHILD
    }
}

/// Waits for a child to end, forgets it, and tells who it was and how it ended. `None` when
/// `only_look` and none has ended yet.
pub fn wait_child(
    me: &Current,
    wanted: WaitFor,
    only_look: bool,
) -> Result<Option<(Pid, ExitStatus)>, Errno> {
    let process = me.process();
    let look = || {
        process.ended_child(|child| match wanted {
            WaitFor::AnyChild => true,
            WaitFor::Child(pid) => child.pid() == pid,
            WaitFor::Group(group) => child.belonging().group == group,
        })
    };
    loop {
        let ended = match look()? {
            None if only_look => return Ok(None),
            Some(child) => child,
            // Another thread may take the last child away while this one waits.
            None => process
                .child_events()
                .wait_until(None, || look().transpose())??,
        };
        let status = ended.exit_status().unwrap_or(ExitStatus::Exited(0));
        if process.reap(&ended) {
            return Ok(Some((ended.pid(), status)));
        }
        // Another thread was told of this one.
    }
}
