//! Resource limits of a process: kept, inherited and told. In force is the one for descriptors.

use linux_raw_sys::general as linux;

use super::MAX_THREADS;
use crate::errno::Errno;
use crate::fs::MAX_FILES;
use crate::mm;

/// Kinds of limits.
const COUNT: usize = 16;

const INFINITY: u64 = u64::MAX;

/// What is in force, and the most that may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The soft limit.
    pub now: u64,
    /// The hard limit. Everybody is root, and may raise it.
    pub most: u64,
}

/// All limits of a process.
#[derive(Clone, Copy, Debug)]
pub struct Limits([Limit; COUNT]);

impl Limits {
    /// Those of the first process.
    pub(super) fn new() -> Self {
        let both = |value| Limit {
            now: value,
            most: value,
        };
        let mut all = [both(INFINITY); COUNT];
        all[linux::RLIMIT_STACK as usize].now = mm::layout::STACK_LIMIT as u64;
        all[linux::RLIMIT_CORE as usize].now = 0;
        all[linux::RLIMIT_NOFILE as usize] = both(MAX_FILES as u64);
        all[linux::RLIMIT_NPROC as usize] = both(MAX_THREADS as u64);
        Self(all)
    }

    /// The limit of that kind; EINVAL for an unknown one.
    pub fn get(&self, kind: u32) -> Result<Limit, Errno> {
        self.0.get(kind as usize).copied().ok_or(Errno::EINVAL)
    }

    /// Changes one.
    ///
    /// # Errors
    /// EINVAL for an unknown kind, or a soft limit above the hard one; EPERM for more descriptors than there can be.
    pub fn set(&mut self, kind: u32, limit: Limit) -> Result<(), Errno> {
        let place = self.0.get_mut(kind as usize).ok_or(Errno::EINVAL)?;
        if limit.now > limit.most {
            return Err(Errno::EINVAL);
        }
        if kind == linux::RLIMIT_NOFILE && limit.most > MAX_FILES as u64 {
            return Err(Errno::EPERM);
        }
        *place = limit;
        Ok(())
    }
}
