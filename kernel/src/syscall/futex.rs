//! The `futex` call.

use linux_raw_sys::general as linux;

use super::args::Args;
use super::clock;
use super::outcome::Outcome;
use crate::errno::Errno;
use crate::task::Deadline;
use crate::task::futex::{self, BITSET_ANY, FutexKey, FutexScope};
use crate::user_memory::UserPtr;

pub(super) fn futex(a: &Args) -> Outcome {
    let flags = a.u32(1);
    let real_time = flags & linux::FUTEX_CLOCK_REALTIME != 0;
    let command = flags & !(linux::FUTEX_PRIVATE_FLAG | linux::FUTEX_CLOCK_REALTIME);
    let scope = match flags & linux::FUTEX_PRIVATE_FLAG {
        0 => FutexScope::Shared,
        _ => FutexScope::Private,
    };
    let key = || key(a.usize(0), scope);
    match command {
        linux::FUTEX_WAIT => wait(key()?, a, BITSET_ANY, clock::timeout(a.ptr(3))?),
        linux::FUTEX_WAIT_BITSET => wait(key()?, a, a.u32(5), absolute_deadline(a, real_time)?),
        linux::FUTEX_WAKE => futex::wake(key()?, at_least_one(a.i32(2)), BITSET_ANY),
        linux::FUTEX_WAKE_BITSET => futex::wake(key()?, at_least_one(a.i32(2)), a.u32(5)),
        linux::FUTEX_REQUEUE => requeue(key()?, scope, a, None),
        linux::FUTEX_CMP_REQUEUE => requeue(key()?, scope, a, Some(a.u32(5))),
        _ => Err(Errno::ENOSYS),
    }
}

/// The futex at an address. Shared memory must be there: EFAULT if not, as on Linux, also for a wake.
fn key(address: usize, scope: FutexScope) -> Result<FutexKey, Errno> {
    let key = FutexKey::current(address, scope)?;
    if scope == FutexScope::Shared {
        UserPtr::<u32>::new(address).read()?;
    }
    Ok(key)
}

/// Linux wakes one waiter even when asked for none.
fn at_least_one(count: i32) -> usize {
    count.max(1) as usize
}

fn wait(key: FutexKey, a: &Args, bitset: u32, deadline: Option<Deadline>) -> Outcome {
    match futex::wait(key, a.u32(2), bitset, deadline) {
        Ok(()) => Ok(0),
        // A timed wait is not made again: its time would start anew.
        Err(Errno::RESTART) if deadline.is_some() => Err(Errno::EINTR),
        Err(errno) => Err(errno),
    }
}

fn requeue(from: FutexKey, scope: FutexScope, a: &Args, expected: Option<u32>) -> Outcome {
    let count = |raw: i32| usize::try_from(raw).map_err(|_| Errno::EINVAL);
    // The fourth argument is a second count here, not a pointer to a timeout.
    let (wake, move_most) = (count(a.i32(2))?, count(a.i32(3))?);
    let to = key(a.usize(4), scope)?;
    let (woken, moved) = futex::requeue(from, to, wake, move_most, expected)?;
    Ok(expected.map_or(woken, |_| woken + moved))
}

fn absolute_deadline(a: &Args, real_time: bool) -> Result<Option<Deadline>, Errno> {
    let at = a.ptr(3).read_if_some()?;
    at.map(|at| clock::absolute(at, real_time)).transpose()
}
