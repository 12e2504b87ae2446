//! Timers that send signals.

use linux_raw_sys::general as linux;
use linux_raw_sys::general::{__kernel_timespec, timeval};

use super::args::Args;
use super::clock::{from_ns, to_ns, to_timeval};
use super::outcome::{Outcome, done};
use crate::errno::Errno;
use crate::task::alarm::{self, AlarmId, Count, Notify, Setting, When};
use crate::task::signal::Signal;
use crate::task::{self, Current, Tid};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The words of a `struct sigevent`: the value, signal and kind, a thread.
type Event = [u64; 3];

fn after(span_ns: u64) -> When {
    match span_ns {
        0 => When::Never,
        _ => When::After(span_ns),
    }
}

pub(super) fn alarm(me: &Current, a: &Args) -> Outcome {
    let span_ns = u64::from(a.u32(0)) * NS_PER_SECOND;
    let before = alarm::set(me.process(), AlarmId::Real, after(span_ns), 0)?;
    // To the nearest second, but 0 is never.
    let seconds = (before.left_ns + NS_PER_SECOND / 2) / NS_PER_SECOND;
    Ok(seconds.max(u64::from(before.left_ns > 0)) as usize)
}

fn interval_timer(a: &Args) -> Result<AlarmId, Errno> {
    match a.u32(0) {
        linux::ITIMER_REAL => Ok(AlarmId::Real),
        linux::ITIMER_VIRTUAL => Ok(AlarmId::Virtual),
        linux::ITIMER_PROF => Ok(AlarmId::Profiling),
        _ => Err(Errno::EINVAL),
    }
}

fn timeval_ns(t: timeval) -> Result<u64, Errno> {
    let fraction = t.tv_usec.checked_mul(1000).ok_or(Errno::EINVAL)?;
    to_ns(__kernel_timespec {
        tv_sec: t.tv_sec,
        tv_nsec: fraction,
    })
}

/// The period, then what is left: at least a microsecond of a timer that is set.
fn timevals(setting: Setting) -> [timeval; 2] {
    let left_ns = setting.left_ns.div_ceil(1000).saturating_mul(1000);
    [setting.period_ns, left_ns].map(to_timeval)
}

pub(super) fn getitimer(me: &Current, a: &Args) -> Outcome {
    let setting = alarm::get(me.process(), interval_timer(a)?)?;
    done(a.ptr(1).write(timevals(setting)))
}

pub(super) fn setitimer(me: &Current, a: &Args) -> Outcome {
    let id = interval_timer(a)?;
    // As on Linux: nothing to set it to stops it.
    let wanted = a.ptr::<[timeval; 2]>(1).read_if_some()?;
    let [period_ns, first_ns] = match wanted {
        Some([period, first]) => [timeval_ns(period)?, timeval_ns(first)?],
        None => [0; 2],
    };
    let before = alarm::set(me.process(), id, after(first_ns), period_ns)?;
    done(a.ptr(2).write_if_some(timevals(before)))
}

pub(super) fn timer_create(me: &Current, a: &Args) -> Outcome {
    let count = match a.u32(0) {
        linux::CLOCK_REALTIME | linux::CLOCK_TAI => Count::RealTime,
        linux::CLOCK_MONOTONIC | linux::CLOCK_BOOTTIME => Count::Time,
        linux::CLOCK_PROCESS_CPUTIME_ID => Count::RunTime,
        _ => return Err(Errno::EINVAL),
    };
    let event = a.ptr::<Event>(1).read_if_some()?;
    let asked = event.map(|event| notify(me, event)).transpose()?;
    let out = a.ptr::<u32>(2);
    let own = |id| (Notify::Process(Signal::ALRM), u64::from(id));
    let id = alarm::create(me.process(), count, |id| asked.unwrap_or(own(id)))?;
    let told = out.write(id);
    if told.is_err() {
        alarm::delete(me.process(), id)?;
    }
    done(told)
}

fn notify(me: &Current, [value, kind, thread]: Event) -> Result<(Notify, u64), Errno> {
    let (signal, kind) = (kind as u32, (kind >> 32) as u32);
    let signal = || Signal::new(signal).ok_or(Errno::EINVAL);
    let notify = match kind {
        linux::SIGEV_NONE => Notify::Nobody,
        // The C library makes the thread.
        linux::SIGEV_SIGNAL | linux::SIGEV_THREAD => Notify::Process(signal()?),
        linux::SIGEV_THREAD_ID => {
            let tid = Tid::new(thread as u32);
            let found = task::find_thread(tid).ok_or(Errno::EINVAL)?;
            if found.process().pid() != me.process().pid() {
                return Err(Errno::EINVAL);
            }
            Notify::Thread(signal()?, tid)
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok((notify, value))
}

fn timespecs(setting: Setting) -> [__kernel_timespec; 2] {
    [setting.period_ns, setting.left_ns].map(from_ns)
}

pub(super) fn timer_settime(me: &Current, a: &Args) -> Outcome {
    let id = AlarmId::Made(a.u32(0));
    let wanted = a.ptr::<[__kernel_timespec; 2]>(2);
    let [period, first] = wanted.non_null().ok_or(Errno::EINVAL)?.read()?;
    let (period_ns, first_ns) = (to_ns(period)?, to_ns(first)?);
    let is_absolute = a.u32(1) & linux::TIMER_ABSTIME != 0;
    let when = match first_ns {
        0 => When::Never,
        at_ns if is_absolute => When::At(at_ns),
        span_ns => When::After(span_ns),
    };
    let before = alarm::set(me.process(), id, when, period_ns)?;
    done(a.ptr(3).write_if_some(timespecs(before)))
}

pub(super) fn timer_gettime(me: &Current, a: &Args) -> Outcome {
    let setting = alarm::get(me.process(), AlarmId::Made(a.u32(0)))?;
    done(a.ptr(1).write(timespecs(setting)))
}

pub(super) fn timer_getoverrun(me: &Current, a: &Args) -> Outcome {
    Ok(alarm::overrun(me.process(), a.u32(0))? as usize)
}

pub(super) fn timer_delete(me: &Current, a: &Args) -> Outcome {
    done(alarm::delete(me.process(), a.u32(0)))
}
