//! Who am I: there is one user, root.

use super::outcome::Outcome;
use crate::task::Current;

pub(super) fn getpid(me: &Current) -> Outcome {
    Ok(me.process().pid().as_u32() as usize)
}

pub(super) fn gettid(me: &Current) -> Outcome {
    Ok(me.tid().as_u32() as usize)
}

pub(super) fn getppid(me: &Current) -> Outcome {
    Ok(me.process().parent_pid() as usize)
}
