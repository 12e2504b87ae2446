//! Delivering pending signals on the way to user mode, and coming back from handlers.

use super::frame::{self, Call};
use super::{AltStack, SigInfo, Signal, set_blocked};
use crate::arch::trap::TrapFrame;
use crate::task::exit::{exit_thread, kill_current};
use crate::task::job::rest_while_stopped;
use crate::task::thread::work;
use crate::task::{Current, ExitStatus, Pid, alarm};

/// Bytes of the `syscall` instruction: going back over it makes the call again.
const SYSCALL_BYTES: u64 = 2;

/// Sees to [`work::EXIT`] and [`work::SIGNAL`] of the current thread. Interrupts are on. May end
/// the thread instead of returning.
pub fn handle_work(me: &Current, frame: &mut TrapFrame) {
    me.clear_work(work::SIGNAL);
    rest_while_stopped(me);
    if me.is_ending() {
        // The process has its status already; this one is not looked at.
        exit_thread(ExitStatus::Killed(Signal::KILL));
    }
    let restart = me.with_context(|context| context.restart.take());
    let mut handled = false;
    // Bounded: delivering a signal to a handler ends the loop.
    while !handled {
        let Some(info) = me.signals.lock().take_deliverable() else {
            break;
        };
        handled = deliver(me, frame, info, restart);
    }
    if !handled {
        // Nothing came of the interruption: the call goes on as if it had not been interrupted.
        if let Some(number) = restart {
            restart_call(frame, number);
        }
        restore_saved_mask(me);
    }
    if me.signals.lock().has_deliverable() {
        me.add_work(work::SIGNAL);
    }
}

/// Acts on one signal. True when user mode now enters a handler.
fn deliver(me: &Current, frame: &mut TrapFrame, info: SigInfo, restart: Option<u64>) -> bool {
    let signal = info.signal();
    let action = me.process().actions.lock().get(signal);
    if action.ignores(signal) {
        return false;
    }
    if action.stops(signal) {
        me.process().stop(signal);
        return false;
    }
    alarm::note_delivered(me.process(), info);
    let pid = me.process().pid();
    let Some(handler) = action.handler() else {
        // It was blocked when it came: else it would not have been kept for the first process.
        if pid == Pid::INIT && info.may_be_from_another(pid.as_u32()) {
            return false;
        }
        log::info!(
            "pid {} ({}) tid {} killed by {signal}",
            me.process().pid(),
            me.process().name(),
            me.tid()
        );
        kill_current(signal);
    };
    if let (Some(number), true) = (restart, action.restarts_calls()) {
        restart_call(frame, number);
    }
    if action.is_one_shot() {
        me.process().actions.lock().reset(signal);
    }
    let (blocked, running, alt_stack) = {
        let signals = me.signals.lock();
        let blocked = signals.saved_blocked.unwrap_or(signals.blocked);
        (blocked, signals.blocked, signals.alt_stack)
    };
    let pushed = action
        .restorer()
        .ok_or(frame::BadFrame)
        .and_then(|restorer| {
            let call = Call {
                handler,
                restorer,
                info,
                blocked,
                alt_stack,
                use_alt_stack: action.on_alt_stack(),
            };
            frame::push(frame, &call)
        });
    if pushed.is_err() {
        no_room(me, frame, signal);
        return true;
    }
    me.signals.lock().saved_blocked = None;
    set_blocked(me, running.union(action.blocked_meanwhile(signal)));
    true
}

/// The frame of a handler of `signal` had no room: that is a SIGSEGV, whose handler may run on the alternate stack. A
/// SIGSEGV without room ends the process.
fn no_room(me: &Current, frame: &mut TrapFrame, signal: Signal) {
    let rip = frame.rip;
    let cause = format_args!("no room for the frame of {signal} at rip {rip:#x}");
    if signal == Signal::SEGV {
        die_of(me, signal, cause);
    }
    force(me, frame, SigInfo::from_kernel(Signal::SEGV), cause);
}

/// Delivers a signal that an instruction of the current thread caused. Blocked or ignored, it
/// ends the process; `cause` says why in the log.
pub fn force(me: &Current, frame: &mut TrapFrame, info: SigInfo, cause: core::fmt::Arguments<'_>) {
    let signal = info.signal();
    let blocked = me.signals.lock().blocked.contains(signal);
    let action = me.process().actions.lock().get(signal);
    if blocked || action.handler().is_none() {
        die_of(me, signal, cause);
    }
    deliver(me, frame, info, None);
}

/// Says why in one line and ends the process.
fn die_of(me: &Current, signal: Signal, cause: core::fmt::Arguments<'_>) -> ! {
    log::warn!(
        "pid {} ({}) tid {} killed by {signal}: {cause}",
        me.process().pid(),
        me.process().name(),
        me.tid()
    );
    kill_current(signal)
}

/// `rt_sigreturn`: back to where the signal came. The result goes into `rax` as it was then.
pub fn sigreturn(me: &Current, frame: &mut TrapFrame) -> u64 {
    match frame::pop(frame) {
        Ok(resumed) => {
            set_blocked(me, resumed.blocked);
            restore_alt_stack(me, resumed.alt_stack, frame.rsp as usize);
        }
        Err(frame::BadFrame) => {
            let (info, rsp, rip) = (SigInfo::from_kernel(Signal::SEGV), frame.rsp, frame.rip);
            force(
                me,
                frame,
                info,
                format_args!("bad signal frame at {rsp:#x}, rip {rip:#x}"),
            );
        }
    }
    frame.rax
}

fn restore_alt_stack(me: &Current, wanted: AltStack, rsp: usize) {
    let mut signals = me.signals.lock();
    if !signals.alt_stack.holds(rsp)
        && let Some(Ok(checked)) = wanted.checked()
    {
        signals.alt_stack = checked;
    }
}

fn restart_call(frame: &mut TrapFrame, number: u64) {
    frame.rax = number;
    frame.rip = frame.rip.wrapping_sub(SYSCALL_BYTES);
}

fn restore_saved_mask(me: &Current) {
    let saved = me.signals.lock().saved_blocked.take();
    if let Some(blocked) = saved {
        set_blocked(me, blocked);
    }
}
