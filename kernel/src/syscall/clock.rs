//! Clocks and sleeping.

use linux_raw_sys::general as linux;
use linux_raw_sys::general::{__kernel_timespec, timeval};

use super::args::Args;
use super::outcome::{Outcome, done};
use crate::errno::Errno;
use crate::task::{self, Current, Deadline, Usage};
use crate::time;
use crate::user_memory::UserPtr;

const NS_PER_SECOND: u64 = 1_000_000_000;
const NS_PER_US: u64 = 1_000;

/// All clocks count time stamps.
const RESOLUTION_NS: u64 = 1;

/// `times` counts in these.
const CLOCK_TICKS_PER_SECOND: u64 = 100;

/// Which clock a call means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clock {
    /// Since the epoch.
    Real,
    /// Since boot.
    Monotonic,
    /// Time that the process has run.
    Process,
    /// Time that the thread has run.
    Thread,
}

impl Clock {
    fn from_id(id: u32) -> Result<Self, Errno> {
        match id {
            linux::CLOCK_REALTIME | linux::CLOCK_REALTIME_COARSE | linux::CLOCK_TAI => {
                Ok(Self::Real)
            }
            linux::CLOCK_MONOTONIC
            | linux::CLOCK_MONOTONIC_RAW
            | linux::CLOCK_MONOTONIC_COARSE
            | linux::CLOCK_BOOTTIME => Ok(Self::Monotonic),
            linux::CLOCK_PROCESS_CPUTIME_ID => Ok(Self::Process),
            linux::CLOCK_THREAD_CPUTIME_ID => Ok(Self::Thread),
            _ => Err(Errno::EINVAL),
        }
    }

    fn now_ns(self, me: &Current) -> u64 {
        match self {
            Self::Real => time::realtime_ns(),
            Self::Monotonic => time::now_ns(),
            Self::Process => me.process().usage().run_ns,
            Self::Thread => me.usage().run_ns,
        }
    }

    /// The point of the monotonic clock that is `at_ns` on this one.
    fn deadline(self, at_ns: u64) -> Result<Deadline, Errno> {
        match self {
            Self::Monotonic => Ok(Deadline::at_ns(at_ns)),
            Self::Real => {
                let span_ns = at_ns.saturating_sub(time::realtime_ns());
                Ok(Deadline::after_ns(span_ns))
            }
            Self::Process | Self::Thread => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// Nanoseconds of a time span or point. EINVAL for a negative one or a malformed fraction.
pub(super) fn to_ns(t: __kernel_timespec) -> Result<u64, Errno> {
    let seconds = u64::try_from(t.tv_sec).map_err(|_| Errno::EINVAL)?;
    let fraction = u64::try_from(t.tv_nsec).map_err(|_| Errno::EINVAL)?;
    if fraction >= NS_PER_SECOND {
        return Err(Errno::EINVAL);
    }
    // Longer than the clock can count (585 years) is for ever.
    let whole_ns = seconds.saturating_mul(NS_PER_SECOND);
    Ok(whole_ns.saturating_add(fraction))
}

/// When a wait ends that may take so long; null is for ever.
pub(super) fn timeout(span: UserPtr<__kernel_timespec>) -> Result<Option<Deadline>, Errno> {
    let span_ns = span.read_if_some()?.map(to_ns).transpose()?;
    Ok(span_ns.map(Deadline::after_ns))
}

pub(super) fn from_ns(ns: u64) -> __kernel_timespec {
    __kernel_timespec {
        tv_sec: (ns / NS_PER_SECOND) as i64,
        tv_nsec: (ns % NS_PER_SECOND) as i64,
    }
}

pub(super) fn to_timeval(ns: u64) -> timeval {
    timeval {
        tv_sec: (ns / NS_PER_SECOND) as i64,
        tv_usec: (ns % NS_PER_SECOND / NS_PER_US) as i64,
    }
}

/// When a wait ends: the time `at`, absolute on the monotonic or the real-time clock.
pub(super) fn absolute(at: __kernel_timespec, real: bool) -> Result<Deadline, Errno> {
    if real { Clock::Real } else { Clock::Monotonic }.deadline(to_ns(at)?)
}

pub(super) fn clock_gettime(me: &Current, a: &Args) -> Outcome {
    let clock = Clock::from_id(a.u32(0))?;
    done(a.ptr(1).write(from_ns(clock.now_ns(me))))
}

pub(super) fn clock_getres(a: &Args) -> Outcome {
    Clock::from_id(a.u32(0))?;
    done(a.ptr(1).write_if_some(from_ns(RESOLUTION_NS)))
}

pub(super) fn gettimeofday(a: &Args) -> Outcome {
    let now = to_timeval(time::realtime_ns());
    a.ptr(0).write_if_some(now)?;
    // The time zone is always UTC.
    done(a.ptr(1).write_if_some([0i32, 0]))
}

pub(super) fn time(a: &Args) -> Outcome {
    let seconds = time::realtime_ns() / NS_PER_SECOND;
    a.ptr::<i64>(0).write_if_some(seconds as i64)?;
    Ok(seconds as usize)
}

pub(super) fn times(me: &Current, a: &Args) -> Outcome {
    let ns_per_tick = NS_PER_SECOND / CLOCK_TICKS_PER_SECOND;
    let (own, children) = (me.process().usage(), me.process().usage_of_children());
    let times = [own, children].map(|used| [used.user_ns(), used.system_ns]);
    let ticks = times.map(|pair| pair.map(|ns| ns / ns_per_tick));
    a.ptr(0).write_if_some(ticks)?;
    Ok((time::now_ns() / ns_per_tick) as usize)
}

pub(super) fn getrusage(me: &Current, a: &Args) -> Outcome {
    let used = match a.i32(0) {
        linux::RUSAGE_CHILDREN => me.process().usage_of_children(),
        who if who == linux::RUSAGE_SELF as i32 => me.process().usage(),
        who if who == linux::RUSAGE_THREAD as i32 => me.usage(),
        _ => return Err(Errno::EINVAL),
    };
    done(a.ptr(1).write(to_rusage(used)))
}

/// A `struct rusage`: times and page faults.
pub(super) fn to_rusage(used: Usage) -> [u64; size_of::<linux::rusage>() / 8] {
    const MINOR_FAULTS: usize = 8;
    let mut words = [0; _];
    let times = [used.user_ns(), used.system_ns].map(to_timeval);
    for (at, time) in times.into_iter().enumerate() {
        words[2 * at] = time.tv_sec as u64;
        words[2 * at + 1] = time.tv_usec as u64;
    }
    words[MINOR_FAULTS] = used.faults;
    words
}

pub(super) fn nanosleep(a: &Args) -> Outcome {
    let span_ns = to_ns(a.ptr(0).read()?)?;
    sleep(Deadline::after_ns(span_ns), a.ptr(1))
}

pub(super) fn clock_nanosleep(a: &Args) -> Outcome {
    let clock = Clock::from_id(a.u32(0))?;
    let time_ns = to_ns(a.ptr(2).read()?)?;
    if a.u32(1) & linux::TIMER_ABSTIME != 0 {
        return sleep(clock.deadline(time_ns)?, UserPtr::new(0));
    }
    // All clocks that can be slept on run equally fast.
    clock.deadline(0)?;
    sleep(Deadline::after_ns(time_ns), a.ptr(3))
}

fn sleep(deadline: Deadline, remaining: UserPtr<__kernel_timespec>) -> Outcome {
    let slept = task::sleep_until(deadline);
    if slept.is_err() {
        remaining.write_if_some(from_ns(deadline.remaining_ns()))?;
    }
    done(slept)
}
