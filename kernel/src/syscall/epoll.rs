//! Files that tell of time and of other files: `timerfd`, `epoll`.

use alloc::vec::Vec;

use linux_raw_sys::general as linux;
use linux_raw_sys::general::__kernel_timespec;

use super::args::Args;
use super::clock::{self, from_ns, to_ns};
use super::outcome::{Outcome, all_known, done};
use super::{io, poll};
use crate::errno::Errno;
use crate::fs::{self, CloseOnExec, EpollEvent, MAX_FILES};
use crate::task::{Current, Deadline};
use crate::user_memory::UserPtr;

/// Bytes of a `struct epoll_event`, which is packed: bits, then data.
const EVENT_BYTES: usize = 12;

/// Set for a timer of the real-time clock, whose times are absolute: nothing sets that clock.
const CANCEL_ON_SET: u32 = 2;

pub(super) fn timerfd_create(me: &Current, a: &Args) -> Outcome {
    let (clock, flags) = (a.u32(0), a.u32(1));
    all_known(flags, linux::O_CLOEXEC | linux::O_NONBLOCK)?;
    if !matches!(
        clock,
        linux::CLOCK_REALTIME | linux::CLOCK_MONOTONIC | linux::CLOCK_BOOTTIME
    ) {
        return Err(Errno::EINVAL);
    }
    let is_real = clock == linux::CLOCK_REALTIME;
    let timer = fs::new_timer(is_real, flags & linux::O_NONBLOCK != 0)?;
    let close_on_exec = CloseOnExec::from_open_flags(flags);
    me.process().files.lock().insert(timer, close_on_exec, 0)
}

fn timespecs((left_ns, period_ns): (u64, u64)) -> [__kernel_timespec; 2] {
    [period_ns, left_ns].map(from_ns)
}

pub(super) fn timerfd_settime(me: &Current, a: &Args) -> Outcome {
    let flags = a.u32(1);
    all_known(flags, linux::TIMER_ABSTIME | CANCEL_ON_SET)?;
    let [period, first] = a.ptr::<[__kernel_timespec; 2]>(2).read()?;
    let (period_ns, first_ns) = (to_ns(period)?, to_ns(first)?);
    let timer = io::file(me, a.i32(0))?;
    let due = match first_ns {
        0 => None,
        _ if flags & linux::TIMER_ABSTIME != 0 => {
            Some(clock::absolute(first, timer.is_real_timer()?)?)
        }
        span_ns => Some(Deadline::after_ns(span_ns)),
    };
    let before = timer.set_timer(due, period_ns)?;
    done(a.ptr(3).write_if_some(timespecs(before)))
}

pub(super) fn timerfd_gettime(me: &Current, a: &Args) -> Outcome {
    let setting = io::file(me, a.i32(0))?.timer_setting()?;
    done(a.ptr(1).write(timespecs(setting)))
}

pub(super) fn create(me: &Current, flags: u32) -> Outcome {
    all_known(flags, linux::EPOLL_CLOEXEC)?;
    let set = fs::new_epoll()?;
    let close_on_exec = CloseOnExec::from_open_flags(flags);
    me.process().files.lock().insert(set, close_on_exec, 0)
}

pub(super) fn old_create(me: &Current, a: &Args) -> Outcome {
    match a.i32(0) {
        ..=0 => Err(Errno::EINVAL),
        _ => create(me, 0),
    }
}

pub(super) fn control(me: &Current, a: &Args) -> Outcome {
    let how = a.u32(1);
    let mut asked = EpollEvent { events: 0, data: 0 };
    if how != linux::EPOLL_CTL_DEL {
        let [events, low, high] = a.ptr::<[u32; 3]>(3).read()?;
        let data = u64::from(low) | u64::from(high) << 32;
        asked = EpollEvent { events, data };
    }
    let (set, file) = (io::file(me, a.i32(0))?, io::file(me, a.i32(2))?);
    done(set.control(how, a.i32(2), &file, asked))
}

pub(super) fn wait(me: &Current, a: &Args) -> Outcome {
    wait_until(me, a, poll::timeout_ms(a.i32(3)))
}

pub(super) fn pwait(me: &Current, a: &Args) -> Outcome {
    let deadline = poll::timeout_ms(a.i32(3));
    poll::with_blocked(me, a.ptr(4), a.usize(5), || wait_until(me, a, deadline))
}

pub(super) fn pwait2(me: &Current, a: &Args) -> Outcome {
    let deadline = clock::timeout(a.ptr(3))?;
    poll::with_blocked(me, a.ptr(4), a.usize(5), || wait_until(me, a, deadline))
}

fn wait_until(me: &Current, a: &Args, deadline: Option<Deadline>) -> Outcome {
    let most = match a.i32(2) {
        ..=0 => return Err(Errno::EINVAL),
        most => (most as usize).min(MAX_FILES),
    };
    let set = io::file(me, a.i32(0))?;
    let mut found = Vec::new();
    let count = poll::until(deadline, || {
        set.take_events(&mut found, most)?;
        Ok(found.len())
    })?;
    for (at, event) in found.iter().enumerate() {
        let there = UserPtr::new(a.usize(1).wrapping_add(at * EVENT_BYTES));
        let EpollEvent { events, data } = *event;
        there.write([events, data as u32, (data >> 32) as u32])?;
    }
    Ok(count)
}
