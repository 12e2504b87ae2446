//! Signal calls.

use linux_raw_sys::general as linux;

use super::args::Args;
use super::clock;
use super::outcome::{Outcome, done};
use crate::arch::trap::TrapFrame;
use crate::errno::Errno;
use crate::task::signal::{self, Action, AltStack, SigInfo, Signal, SignalSet};
use crate::task::{self, Current, Pid, Process, Tid};
use crate::user_memory::{UserBytes, UserPtr};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The only size of a signal set there is on x86-64.
const SET_BYTES: usize = size_of::<u64>();

fn signal_argument(number: u32) -> Result<Signal, Errno> {
    Signal::new(number).ok_or(Errno::EINVAL)
}

pub(super) fn set_size_ok(size: usize) -> Result<(), Errno> {
    match size {
        SET_BYTES => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn rt_sigaction(me: &Current, a: &Args) -> Outcome {
    set_size_ok(a.usize(3))?;
    let signal = signal_argument(a.u32(0))?;
    let wanted = a.ptr::<Action>(1).read_if_some()?;
    if wanted.is_some() && (signal == Signal::KILL || signal == Signal::STOP) {
        return Err(Errno::EINVAL);
    }
    let old = signal::set_action(me, signal, wanted);
    done(a.ptr(2).write_if_some(old))
}

pub(super) fn rt_sigprocmask(me: &Current, a: &Args) -> Outcome {
    set_size_ok(a.usize(3))?;
    let old = me.blocked_signals();
    if let Some(set) = a.ptr::<u64>(1).non_null() {
        let set = SignalSet::from_bits(set.read()?);
        let new = match a.u32(0) {
            linux::SIG_BLOCK => old.union(set),
            linux::SIG_UNBLOCK => old.minus(set),
            linux::SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        signal::set_blocked(me, new);
    }
    done(a.ptr(2).write_if_some(old.bits()))
}

pub(super) fn rt_sigpending(me: &Current, a: &Args) -> Outcome {
    if a.usize(1) > SET_BYTES {
        return Err(Errno::EINVAL);
    }
    let bits = me.pending_signals().bits().to_ne_bytes();
    let out = UserBytes::new(a.usize(0), a.usize(1))?;
    done(out.copy_from(&bits[..out.len]))
}

pub(super) fn rt_sigsuspend(me: &Current, a: &Args) -> Outcome {
    set_size_ok(a.usize(1))?;
    let set = SignalSet::from_bits(a.ptr::<u64>(0).read()?);
    Err(signal::suspend(me, set))
}

pub(super) fn rt_sigtimedwait(me: &Current, a: &Args) -> Outcome {
    set_size_ok(a.usize(3))?;
    let wanted = SignalSet::from_bits(a.ptr::<u64>(0).read()?).blockable();
    let info = signal::wait_for(me, wanted, clock::timeout(a.ptr(2))?)?;
    if !a.ptr::<u8>(1).is_null() {
        let bytes = info.to_bytes();
        UserBytes::new(a.usize(1), bytes.len())?.copy_from(&bytes)?;
    }
    Ok(info.signal().number() as usize)
}

pub(super) fn pause(me: &Current) -> Outcome {
    Err(signal::suspend(me, me.blocked_signals()))
}

pub(super) fn sigaltstack(me: &Current, a: &Args, frame: &TrapFrame) -> Outcome {
    let wanted = a.ptr::<AltStack>(0).read_if_some()?;
    let old = signal::set_alt_stack(me, wanted, frame.rsp as usize)?;
    done(a.ptr(1).write_if_some(old))
}

pub(super) fn kill(me: &Current, a: &Args) -> Outcome {
    let sender = me.process().pid().as_u32();
    let (pid, number) = (a.i32(0), a.u32(1));
    let info = match number {
        0 => None,
        number => Some(SigInfo::from_kill(signal_argument(number)?, sender)),
    };
    let targets = match pid {
        0 => group(me, me.process().belonging().group),
        1.. => alloc::vec![task::find_process(Pid::new(pid as u32)).ok_or(Errno::ESRCH)?],
        -1 => {
            let mut others = task::all_processes();
            others.retain(|p| p.pid() != Pid::INIT && p.pid() != me.process().pid());
            others
        }
        _ => group(me, Pid::new(pid.unsigned_abs())),
    };
    if targets.is_empty() {
        return Err(Errno::ESRCH);
    }
    if let Some(info) = info {
        targets
            .iter()
            .for_each(|target| signal::post_to_process(target, info));
    }
    Ok(0)
}

/// The processes of a group, without the first one: a signal of others that it does not handle does not reach it on Linux.
fn group(me: &Current, group: Pid) -> Vec<Arc<Process>> {
    let mut members = task::members(group);
    members.retain(|p| p.pid() != Pid::INIT || p.pid() == me.process().pid());
    members
}

pub(super) fn tkill(me: &Current, a: &Args) -> Outcome {
    send_to_thread(me, None, a.i32(0), a.u32(1))
}

pub(super) fn tgkill(me: &Current, a: &Args) -> Outcome {
    if a.i32(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    send_to_thread(me, Some(Pid::new(a.u32(0))), a.i32(1), a.u32(2))
}

fn send_to_thread(me: &Current, process: Option<Pid>, tid: i32, number: u32) -> Outcome {
    if tid <= 0 {
        return Err(Errno::EINVAL);
    }
    let thread = task::find_thread(Tid::new(tid as u32)).ok_or(Errno::ESRCH)?;
    if process.is_some_and(|pid| pid != thread.process().pid()) {
        return Err(Errno::ESRCH);
    }
    if number != 0 {
        let sender = me.process().pid().as_u32();
        let info = SigInfo::from_tkill(signal_argument(number)?, sender);
        signal::post_to_thread(&thread, info);
    }
    Ok(0)
}

/// Number, error, code and padding, sender and user, value.
type QueuedInfo = [u64; 4];

/// What a process says of the signal that it sends. It may not look like the kernel's, or like `kill`'s, but to itself.
fn queued(number: u32, info: UserPtr<QueuedInfo>, is_own: bool) -> Result<Option<SigInfo>, Errno> {
    let [_, code, sender, value] = info.read()?;
    let code = code as i32;
    if !is_own && (code >= 0 || code == linux::SI_TKILL) {
        return Err(Errno::EPERM);
    }
    match number {
        0 => Ok(None),
        number => {
            let signal = signal_argument(number)?;
            let info = SigInfo::from_queue(signal, code, sender as u32, value);
            Ok(Some(info))
        }
    }
}

pub(super) fn rt_sigqueueinfo(me: &Current, a: &Args) -> Outcome {
    let pid = Pid::new(a.u32(0));
    let info = queued(a.u32(1), a.ptr(2), pid == me.process().pid())?;
    let process = task::find_process(pid).ok_or(Errno::ESRCH)?;
    if let Some(info) = info {
        signal::post_to_process(&process, info);
    }
    Ok(0)
}

pub(super) fn rt_tgsigqueueinfo(me: &Current, a: &Args) -> Outcome {
    if a.i32(0) <= 0 || a.i32(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    let pid = Pid::new(a.u32(0));
    let info = queued(a.u32(2), a.ptr(3), pid == me.process().pid())?;
    let thread = task::find_thread(Tid::new(a.u32(1)));
    let thread = thread.filter(|it| it.process().pid() == pid);
    let thread = thread.ok_or(Errno::ESRCH)?;
    if let Some(info) = info {
        signal::post_to_thread(&thread, info);
    }
    Ok(0)
}
