//! Making signals pending, and changing what is blocked.

use alloc::sync::Arc;

use super::{SigInfo, Signal, SignalSet};
use crate::task::exit::end_process;
use crate::task::thread::work;
use crate::task::{Current, ExitStatus, Pid, Process, Thread, current, sched};

/// Posts a signal to one thread, wherever it is.
///
/// An ignored signal is dropped unless it is blocked; SIGKILL ends the process, those that stop it do so at once.
pub fn post_to_thread(thread: &Arc<Thread>, info: SigInfo) {
    let signal = info.signal();
    let process = thread.process();
    let action = process.actions.lock().get(signal);
    let unwanted = action.handler().is_none() && is_sheltered(process);
    if signal == Signal::KILL {
        if !unwanted {
            end_process(process, ExitStatus::Killed(signal));
        }
        return;
    }
    oppose(process, signal);
    let ignored = action.ignores(signal) || unwanted;
    let stops = action.stops(signal);
    let deliverable = {
        let mut signals = thread.signals.lock();
        let blocked = signals.blocked.contains(signal);
        if ignored && !blocked {
            return;
        }
        if blocked || !stops {
            signals.add(info);
        }
        !blocked
    };
    if deliverable && stops {
        return process.stop(signal);
    }
    if deliverable {
        thread.add_work(work::SIGNAL);
        sched::nudge(thread);
    }
    // Also when blocked: the thread may be in `sigtimedwait`.
    sched::unpark(thread);
}

/// SIGCONT has a process go on, whatever it does about the signal; signals to stop and to go on make each other undone.
fn oppose(process: &Arc<Process>, signal: Signal) {
    let undone = match signal {
        Signal::CONT => SignalSet::STOPPING,
        _ if SignalSet::STOPPING.contains(signal) => SignalSet::only(Signal::CONT),
        _ => return,
    };
    process.shared_signals.lock().forget(undone);
    for thread in process.threads() {
        thread.signals.lock().forget(undone);
    }
    if signal == Signal::CONT {
        process.resume();
    }
}

/// Posts a signal to a process: to a thread that does not block it if there is one, else to whichever is the first to stop blocking it.
pub fn post_to_process(process: &Arc<Process>, info: SigInfo) {
    let signal = info.signal();
    let threads = process.threads();
    let open = || {
        let is_open = |t: &&Arc<Thread>| !t.signals.lock().blocked.contains(signal);
        threads.iter().find(is_open)
    };
    // Those, too, that nobody waits to see delivered.
    if let Some(thread) = open().or_else(|| threads.first().filter(|_| signal == Signal::KILL)) {
        return post_to_thread(thread, info);
    }
    oppose(process, signal);
    process.shared_signals.lock().add(info);
    // One may have stopped blocking it in between, and have found nothing.
    if let Some(thread) = open() {
        let taken = process.shared_signals.lock().take(SignalSet::only(signal));
        if let Some(info) = taken {
            post_to_thread(thread, info);
        }
    }
}

/// Whether signals of the running thread reach the process only where it handles them: those of others the first process, whose end is the machine's.
fn is_sheltered(process: &Process) -> bool {
    process.pid() == Pid::INIT && current().process().pid() != Pid::INIT
}

/// Replaces the blocked set of the current thread and returns the one before. Signals that it no
/// longer blocks are delivered on the way to user mode.
pub fn set_blocked(me: &Current, blocked: SignalSet) -> SignalSet {
    let (old, deliverable) = {
        let mut signals = me.signals.lock();
        let old = core::mem::replace(&mut signals.blocked, blocked.blockable());
        (old, signals.has_deliverable())
    };
    let deliverable = claim_shared(me) || deliverable;
    if deliverable {
        me.add_work(work::SIGNAL);
    }
    old
}

/// Takes over signals of the process that the current thread does not block; whether there were any.
fn claim_shared(me: &Current) -> bool {
    let mut claimed = false;
    let wanted = SignalSet::from_bits(!me.blocked_signals().bits());
    loop {
        let taken = me.process().shared_signals.lock().take(wanted);
        let Some(info) = taken else {
            return claimed;
        };
        me.signals.lock().add(info);
        claimed = true;
    }
}
