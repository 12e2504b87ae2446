//! Sleeping and waking.
//!
//! Sleeping is a park with a token, as in `std::thread`: [`unpark`] of a running thread makes its
//! next [`park`] return at once. A sleeper therefore puts itself where its waker will look, checks
//! its condition in a loop, and parks; no wake-up can be lost and spurious ones are harmless.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use shootdown::CpuId;

use super::place::enqueue;
use super::switch::{give_way_to, reschedule};
use super::vacate;
use crate::arch::{percpu, timer};
use crate::errno::Errno;
use crate::irq;
use crate::task::Thread;
use crate::task::cpu::{self, Leave};
use crate::task::current::current;
use crate::task::queue::Place;
use crate::task::thread::park_state;
use crate::task::timer::Deadline;
use crate::time;

/// Sleeps until the deadline.
///
/// # Errors
/// EINTR when a signal came first.
pub fn sleep_until(deadline: Deadline) -> Result<(), Errno> {
    let me = current();
    while !deadline.has_passed() {
        if me.is_interrupted() {
            return Err(Errno::EINTR);
        }
        park(Some(deadline));
    }
    Ok(())
}

/// Sleeps until [`unpark`], the deadline, or for no reason: the caller checks its condition in a
/// loop around this. Returns at once when a wake-up came since the last park.
///
/// Context: a user thread inside a system call, no lock held, preemption enabled.
pub(in crate::task) fn park(deadline: Option<Deadline>) {
    let me = current();
    let timer_cpu = deadline.map(|deadline| {
        let state = irq::save();
        let cpu = percpu::cpu_id();
        cpu::of(cpu).timers.lock().insert(me.to_arc(), deadline);
        timer::set_earlier(deadline.as_ns());
        irq::restore(state);
        cpu
    });
    let state = irq::save();
    if fall_asleep(&me) {
        reschedule(Leave::Parked);
    }
    irq::restore(state);
    if let Some(cpu) = timer_cpu {
        forget_deadline(&me, cpu);
    }
}

/// Makes the current thread one that sleeps, for its CPU to leave it; false, and the token is gone, when a wake-up came
/// since the last time. Interrupts are off.
fn fall_asleep(me: &Thread) -> bool {
    // ORDERING: acquire of what the waker did before its token; pairs with the release in `wake`.
    let sleeping = me.park.compare_exchange(
        park_state::RUNNABLE,
        park_state::PARKED,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if sleeping.is_err() {
        me.park.store(park_state::RUNNABLE, Ordering::Relaxed);
    }
    sleeping.is_ok()
}

/// Wakes `next` and sleeps as [`park_uninterrupted`] does, in one step: the CPU goes from here to `next` directly, past the
/// queue, with what is left of this thread's slice. So it does unless `next` may not run here, somebody more urgent waits
/// for the CPU, or the slice is over; then the two steps are taken one by one.
///
/// Context: as [`park`].
pub fn hand_over(next: &Arc<Thread>) {
    let state = irq::save();
    let woken = wake(next);
    match (woken, fall_asleep(&current())) {
        (true, true) => give_way_to(next.clone()),
        (true, false) => enqueue(next.clone(), Place::Woken),
        (false, true) => reschedule(Leave::Parked),
        (false, false) => {}
    }
    irq::restore(state);
}

/// Takes the thread's entry out of the timers of that CPU, or of the one that has taken them over.
fn forget_deadline(me: &Thread, cpu: CpuId) {
    let entry = cpu::of(cpu).timers.lock().remove(me);
    if entry.is_none() {
        drop(cpu::of(vacate::HEIR).timers.lock().remove(me));
    }
}

/// Hook of every timer interrupt; interrupts off. Wakes those of this CPU whose time has come, and says when the next
/// one's does.
pub fn expire_deadlines() -> u64 {
    let cpu = cpu::this();
    if cpu.is_started() {
        cpu.timers.lock().expire(time::now_ns())
    } else {
        u64::MAX
    }
}

/// Sleeps until the deadline or a wake-up, whatever signals come: for waits that end soon and must not be cut short.
pub fn doze(deadline: Deadline) {
    park(Some(deadline));
}

/// Sleeps until [`unpark`], or for no reason; a signal or the end of the process does not end it. As [`park`].
pub fn park_uninterrupted() {
    park(None);
}

/// Wakes the thread, or makes its next [`park`] return at once.
///
/// Context: any, interrupt handlers included; leaf locks may be held.
pub fn unpark(thread: &Arc<Thread>) {
    if wake(thread) {
        enqueue(thread.clone(), Place::Woken);
    }
}

/// Leaves the thread a token if it does not sleep. If it does, it no longer counts as asleep: true, and the caller, nobody
/// else, is to queue it or to run it.
#[must_use]
fn wake(thread: &Thread) -> bool {
    // ORDERING: publishes the condition that the sleeper checks; pairs with `fall_asleep`.
    let before =
        thread
            .park
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
                park_state::PARKED => Some(park_state::RUNNABLE),
                park_state::RUNNABLE => Some(park_state::NOTIFIED),
                _ => None,
            });
    before == Ok(park_state::PARKED)
}
