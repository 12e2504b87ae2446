//! Waiting for signals, and the calls that set up how they arrive.

use super::{Action, AltStack, SigInfo, Signal, SignalSet, pending::TooSmall, set_blocked};
use crate::errno::Errno;
use crate::task::{Current, Deadline, alarm, sched};

/// Waits with another blocked set until a signal is handled: always EINTR.
pub fn suspend(me: &Current, blocked: SignalSet) -> Errno {
    let old = set_blocked(me, blocked);
    while !me.is_interrupted() {
        sched::park(None);
    }
    me.signals.lock().saved_blocked = Some(old);
    Errno::EINTR
}

/// Ends a wait with another blocked set: `old` comes back now, or after the handler that
/// `interrupted` the wait.
pub fn unblock_after(me: &Current, old: SignalSet, interrupted: bool) {
    if interrupted {
        me.signals.lock().saved_blocked = Some(old);
    } else {
        set_blocked(me, old);
    }
}

/// Takes a pending signal of the set, waiting for one until the deadline.
///
/// # Errors
/// EAGAIN at the deadline, EINTR when another signal came.
pub fn wait_for(
    me: &Current,
    wanted: SignalSet,
    deadline: Option<Deadline>,
) -> Result<SigInfo, Errno> {
    // While it waits the signals count as deliverable, so that posting one wakes the thread.
    let old = me.blocked_signals();
    set_blocked(me, old.minus(wanted));
    let result = loop {
        let taken = me.signals.lock().take(wanted);
        if let Some(info) = taken {
            alarm::note_delivered(me.process(), info);
            break Ok(info);
        }
        if me.is_interrupted() {
            break Err(Errno::EINTR);
        }
        if deadline.is_some_and(Deadline::has_passed) {
            break Err(Errno::EAGAIN);
        }
        sched::park(deadline);
    };
    set_blocked(me, old);
    result
}

/// Reads and perhaps replaces the alternate stack while the stack pointer is `rsp`.
///
/// # Errors
/// EPERM while it is in use, ENOMEM when it is too small, EINVAL for unknown flags.
pub fn set_alt_stack(
    me: &Current,
    wanted: Option<AltStack>,
    rsp: usize,
) -> Result<AltStack, Errno> {
    let mut signals = me.signals.lock();
    let old = signals.alt_stack;
    if let Some(wanted) = wanted {
        if old.holds(rsp) {
            return Err(Errno::EPERM);
        }
        signals.alt_stack = wanted
            .checked()
            .ok_or(Errno::EINVAL)?
            .map_err(|TooSmall| Errno::ENOMEM)?;
    }
    Ok(old.seen_from(rsp))
}

/// Reads and perhaps replaces the action for a signal.
pub fn set_action(me: &Current, signal: Signal, wanted: Option<Action>) -> Action {
    let mut actions = me.process().actions.lock();
    let old = actions.get(signal);
    if let Some(wanted) = wanted {
        actions.set(signal, wanted);
    }
    old
}
