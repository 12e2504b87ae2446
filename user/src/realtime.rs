//! Priorities and exact sleeps: what a program with a deadline asks of a kernel.
//!
//! The calls go to the kernel directly: musl's `sched_setscheduler` refuses without asking it.

use std::io;
use std::time::Duration;

use crate::timespec::{in_ns, timespec};

/// The calling thread, where a thread is named.
pub const SELF: libc::pid_t = 0;

/// A moment of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let mut time = timespec(0);
        // SAFETY: `time` is a valid timespec to fill; every kernel has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        Self {
            ns: in_ns(time).cast_unsigned(),
        }
    }

    /// The moment so much later.
    pub fn after(self, duration: Duration) -> Self {
        Self {
            ns: self.ns + duration.as_nanos() as u64,
        }
    }

    /// How long it has been since `earlier`; nothing if that is yet to come.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }

    /// Sleeps until this moment.
    ///
    /// # Errors
    /// A signal came first, or the kernel has no such call.
    pub fn wait(self) -> io::Result<()> {
        sleep(libc::TIMER_ABSTIME, self.ns)
    }
}

/// Sleeps for `duration`.
///
/// # Errors
/// As [`Moment::wait`].
pub fn sleep_for(duration: Duration) -> io::Result<()> {
    sleep(0, duration.as_nanos() as u64)
}

/// Gives `thread` the scheduling policy `policy` at `priority`.
///
/// # Errors
/// As the kernel says.
pub fn set_scheduler(thread: libc::pid_t, policy: i32, priority: i32) -> io::Result<()> {
    let mut param = no_parameters();
    param.sched_priority = priority;
    // SAFETY: `param` is a valid parameter block, read only.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &param) };
    done(result).map(drop)
}

/// Makes the calling thread one of `SCHED_FIFO` at `priority`: it runs before all ordinary ones until it sleeps.
///
/// # Errors
/// The kernel has no such policy, or the caller may not use it.
pub fn become_fifo(priority: i32) -> io::Result<()> {
    set_scheduler(SELF, libc::SCHED_FIFO, priority)
}

/// Makes the calling thread an ordinary one.
///
/// # Errors
/// As the kernel says.
pub fn become_ordinary() -> io::Result<()> {
    set_scheduler(SELF, libc::SCHED_OTHER, 0)
}

/// The scheduling policy of `thread`.
///
/// # Errors
/// As the kernel says.
pub fn scheduler(thread: libc::pid_t) -> io::Result<i32> {
    // SAFETY: takes a number.
    done(unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) })
}

/// The priority of `thread`.
///
/// # Errors
/// As the kernel says.
pub fn priority(thread: libc::pid_t) -> io::Result<i32> {
    let mut param = no_parameters();
    // SAFETY: `param` is a valid parameter block to fill.
    let result = unsafe { libc::syscall(libc::SYS_sched_getparam, thread, &mut param) };
    done(result).map(|_| param.sched_priority)
}

/// The number by which other threads may name the calling one.
pub fn thread_id() -> libc::pid_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

fn no_parameters() -> libc::sched_param {
    // SAFETY: the structure is made of integers, for which zero is a valid value; how many there are depends on the library.
    unsafe { std::mem::zeroed() }
}

fn sleep(flags: i32, ns: u64) -> io::Result<()> {
    let (clock, time) = (libc::CLOCK_MONOTONIC, timespec(ns.cast_signed()));
    let rest = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: `time` is a valid timespec, and nobody asks for the rest.
    let result = unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, &time, rest) };
    done(result).map(drop)
}

fn done(result: libc::c_long) -> io::Result<i32> {
    match result {
        0.. => Ok(result as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_never_ends_early() {
        let until = Moment::now().after(Duration::from_millis(2));
        until.wait().unwrap();
        assert!(Moment::now() >= until);
        until.wait().unwrap();
        assert_eq!(until.since(Moment::now()), Duration::ZERO);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(set_scheduler(SELF, libc::SCHED_FIFO, 0).is_err());
        assert!(set_scheduler(SELF, 77, 0).is_err());
        assert!(scheduler(-1).is_err());
    }
}
