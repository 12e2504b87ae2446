//! Scheduling rules and priorities: `sched_setscheduler` and its kin.
//!
//! `SCHED_OTHER`, `SCHED_FIFO` and `SCHED_RR` are known; `SCHED_BATCH`, `SCHED_IDLE` and deadlines are EINVAL. Everybody is
//! root here, so EPERM is never the answer, and nothing limits the time that real-time threads take: one that loops keeps
//! all others from its CPU.

use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::args::Args;
use super::outcome::{Outcome, all_known, done};
use super::{clock, schedule};
use crate::errno::Errno;
use crate::task::{self, Current, Priority, Rule, Scheduling, Thread};
use crate::user_memory::UserPtr;

/// The rule behind the number. EINVAL for one that is not known.
fn rule(number: u32) -> Result<Rule, Errno> {
    match number {
        linux::SCHED_NORMAL => Ok(Rule::Normal),
        linux::SCHED_FIFO => Ok(Rule::Fifo),
        linux::SCHED_RR => Ok(Rule::RoundRobin),
        _ => Err(Errno::EINVAL),
    }
}

fn number(rule: Rule) -> u32 {
    match rule {
        Rule::Normal => linux::SCHED_NORMAL,
        Rule::Fifo => linux::SCHED_FIFO,
        Rule::RoundRobin => linux::SCHED_RR,
    }
}

/// The thread with that number, 0 for the caller.
fn target(me: &Current, tid: i32) -> Result<Arc<Thread>, Errno> {
    let tid = u32::try_from(tid).map_err(|_| Errno::EINVAL)?;
    schedule::target(me, tid)
}

/// Reads the priority that a `struct sched_param` holds. Negative ones fit no rule.
fn read_priority(parameters: UserPtr<i32>) -> Result<u32, Errno> {
    let parameters = parameters.non_null().ok_or(Errno::EINVAL)?;
    u32::try_from(parameters.read()?).map_err(|_| Errno::EINVAL)
}

pub(super) fn sched_setscheduler(me: &Current, a: &Args) -> Outcome {
    let (tid, wanted) = (a.i32(0), a.i32(1));
    if tid < 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = u32::try_from(wanted).map_err(|_| Errno::EINVAL)?;
    let priority = read_priority(a.ptr(2))?;
    let thread = target(me, tid)?;
    let resets = wanted & linux::SCHED_RESET_ON_FORK != 0;
    let rule = rule(wanted & !linux::SCHED_RESET_ON_FORK)?;
    let scheduling = Scheduling::new(rule, priority, resets).ok_or(Errno::EINVAL)?;
    task::set_scheduling(&thread, scheduling);
    Ok(0)
}

pub(super) fn sched_getscheduler(me: &Current, a: &Args) -> Outcome {
    let scheduling = target(me, a.i32(0))?.scheduling();
    let flag = u32::from(scheduling.resets_on_fork()) * linux::SCHED_RESET_ON_FORK;
    Ok((number(scheduling.rule()) | flag) as usize)
}

pub(super) fn sched_setparam(me: &Current, a: &Args) -> Outcome {
    let priority = read_priority(a.ptr(1))?;
    let thread = target(me, a.i32(0))?;
    let old = thread.scheduling();
    let new = Scheduling::new(old.rule(), priority, old.resets_on_fork()).ok_or(Errno::EINVAL)?;
    task::set_scheduling(&thread, new);
    Ok(0)
}

pub(super) fn sched_getparam(me: &Current, a: &Args) -> Outcome {
    let out = a.ptr::<i32>(1).non_null().ok_or(Errno::EINVAL)?;
    let priority = target(me, a.i32(0))?.scheduling().priority();
    done(out.write(priority.as_u32() as i32))
}

pub(super) fn sched_get_priority_max(a: &Args) -> Outcome {
    Ok(bounds(a)?.1)
}

pub(super) fn sched_get_priority_min(a: &Args) -> Outcome {
    Ok(bounds(a)?.0)
}

fn bounds(a: &Args) -> Result<(usize, usize), Errno> {
    match rule(a.u32(0))? {
        Rule::Normal => Ok((0, 0)),
        Rule::Fifo | Rule::RoundRobin => {
            let (least, most) = Priority::REAL_TIME.into_inner();
            Ok((least as usize, most as usize))
        }
    }
}

/// The slice; 0, as on Linux, where there is none.
pub(super) fn sched_rr_get_interval(me: &Current, a: &Args) -> Outcome {
    let scheduling = target(me, a.i32(0))?.scheduling();
    let slice_ns = u64::from(scheduling.has_slices()) * task::SLICE_NS;
    done(a.ptr(1).write(clock::from_ns(slice_ns)))
}

/// A `struct sched_attr` as it first was: size and rule, flags, niceness and priority, then what deadlines need.
type Attributes = [u64; 6];

pub(super) fn sched_getattr(me: &Current, a: &Args) -> Outcome {
    let size = a.usize(2);
    if a.u32(3) != 0 || size < size_of::<Attributes>() {
        return Err(Errno::EINVAL);
    }
    let thread = target(me, a.i32(0))?;
    let scheduling = thread.scheduling();
    let (rule, priority) = (number(scheduling.rule()), scheduling.priority().as_u32());
    let nice = thread.process().nice() as u32;
    let flags = u64::from(scheduling.resets_on_fork());
    let size = size_of::<Attributes>() as u64;
    let attributes: Attributes = [
        size | u64::from(rule) << 32,
        flags,
        u64::from(nice) | u64::from(priority) << 32,
        0,
        0,
        0,
    ];
    done(a.ptr(1).write(attributes))
}

pub(super) fn sched_setattr(me: &Current, a: &Args) -> Outcome {
    let pointer = a.ptr::<u32>(1);
    if pointer.is_null() || a.u32(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let size = pointer.read()? as usize;
    if size != 0 && size < size_of::<Attributes>() {
        pointer.write(size_of::<Attributes>() as u32)?;
        return Err(Errno::E2BIG);
    }
    let [first, flags, third, ..] = a.ptr::<Attributes>(1).read()?;
    all_known(flags as u32, linux::SCHED_FLAG_RESET_ON_FORK)?;
    let thread = target(me, a.i32(0))?;
    let (rule, priority) = (rule((first >> 32) as u32)?, (third >> 32) as u32);
    let scheduling = Scheduling::new(rule, priority, flags != 0).ok_or(Errno::EINVAL)?;
    if rule == Rule::Normal {
        thread.process().set_nice(third as i32);
    }
    task::set_scheduling(&thread, scheduling);
    Ok(0)
}
