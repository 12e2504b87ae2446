//! Choosing, switching, sleeping and waking.
//!
//! Round robin on every CPU, non-preemptible in kernel mode: a thread gives up its CPU when it
//! parks, or on its way back to user mode when its slice is over.
//!
//! Sleeping is a park with a token, as in `std::thread`: [`unpark`] of a running thread makes its
//! next [`park`] return at once. A sleeper therefore puts itself where its waker will look, checks
//! its condition in a loop, and parks; no wake-up can be lost and spurious ones are harmless.
//!
//! A woken thread may still be on its way off its CPU. Until `on_cpu` turns false it is queued on
//! that very CPU, which cannot pick it before the switch is complete.

use alloc::sync::Arc;
use core::sync::atomic::{Ordering, fence};

use shootdown::{CpuId, CpuMask};

use super::cpu::{self, CpuSched, Leave, Local};
use super::current::current;
use super::queue::Kick;
use super::thread::{park_state, work};
use super::timer::Deadline;
use super::{Thread, signal};
use crate::arch::trap::TrapFrame;
use crate::arch::{context, fpu, fsbase, irq, percpu};
use crate::errno::Errno;
use crate::platform::{MAX_CPUS, SHOOTDOWN};
use crate::{mm, time};

/// How long a thread runs before others on its CPU get their turn.
const SLICE_NS: u64 = 10_000_000;

/// Hook of the timer interrupt; interrupts off.
pub fn timer_tick() {
    let cpu = cpu::this();
    if !cpu.is_started() {
        return;
    }
    let now_ns = time::now_ns();
    cpu.timers.lock().expire(now_ns);
    cpu.with_local(|local| {
        local.account(now_ns);
        if now_ns >= local.slice_end_ns && !local.current.is_idle() {
            cpu.set_need_resched();
        }
    });
}

/// Sleeps until [`unpark`], the deadline, or for no reason: the caller checks its condition in a
/// loop around this. Returns at once when a wake-up came since the last park.
///
/// Context: a user thread inside a system call, no lock held, preemption enabled.
pub(super) fn park(deadline: Option<Deadline>) {
    let me = current();
    let timer_cpu = deadline.map(|deadline| {
        let state = irq::save();
        let cpu = percpu::cpu_id();
        cpu::of(cpu).timers.lock().insert(me.to_arc(), deadline);
        irq::restore(state);
        cpu
    });
    let state = irq::save();
    // ORDERING: acquire of what the waker did before its token; pairs with the release in `unpark`.
    let sleeping = me.park.compare_exchange(
        park_state::RUNNABLE,
        park_state::PARKED,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    match sleeping {
        Ok(_) => reschedule(Leave::Parked),
        Err(_) => me.park.store(park_state::RUNNABLE, Ordering::Relaxed),
    }
    irq::restore(state);
    if let Some(cpu) = timer_cpu {
        drop(cpu::of(cpu).timers.lock().remove(&me));
    }
}

/// Wakes the thread, or makes its next [`park`] return at once.
///
/// Context: any, interrupt handlers included; leaf locks may be held.
pub(super) fn unpark(thread: &Arc<Thread>) {
    // ORDERING: publishes the condition that the sleeper checks; pairs with `park`.
    let before =
        thread
            .park
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
                park_state::PARKED => Some(park_state::RUNNABLE),
                park_state::RUNNABLE => Some(park_state::NOTIFIED),
                _ => None,
            });
    // Whoever took it out of PARKED is the only one to queue it.
    if before == Ok(park_state::PARKED) {
        enqueue(thread.clone());
    }
}

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

/// How many CPUs schedule threads.
pub fn cpu_count() -> usize {
    cpu::started().count()
}

/// Those CPUs as the bits of a word.
pub fn usable_cpu_bits() -> u64 {
    cpu::started_bits()
}

/// Pins a thread to these CPUs, at least one of which is usable. It moves at once.
pub fn set_affinity(thread: &Arc<Thread>, cpus: &CpuMask<MAX_CPUS>) {
    thread.affinity.set(cpus);
    migrate(thread);
}

/// The idle thread gives way to whatever is ready. Interrupts are off.
pub(super) fn reschedule_idle() {
    reschedule(Leave::Ready);
}

/// Lets others on this CPU run when this thread has had its turn; for long work in the kernel.
///
/// Context: as [`yield_now`].
pub fn yield_if_due() {
    let state = irq::save();
    if cpu::this().need_resched() {
        reschedule(Leave::Ready);
    }
    irq::restore(state);
}

/// Lets others on this CPU run first, if there are any.
///
/// Context: a user thread inside a system call, no lock held, preemption enabled.
pub fn yield_now() {
    let state = irq::save();
    reschedule(Leave::Ready);
    irq::restore(state);
}

/// Queues a new thread on the least loaded CPU that it may use.
pub(super) fn start(thread: Arc<Thread>) {
    enqueue(thread);
}

/// Makes the CPU where the thread runs look at its work bits soon, wherever it is now.
/// Interrupts its CPU when that is another one; a sleeping thread is not woken.
pub(super) fn nudge(thread: &Thread) {
    // ORDERING: Dekker with `publish_cpu`: either the CPU that takes the thread sees the work bit
    // set before this call, or this sees that CPU.
    fence(Ordering::SeqCst);
    request_resched(thread.cpu());
}

/// Applies a changed affinity mask to a thread, which may be running, queued or asleep.
fn migrate(thread: &Arc<Thread>) {
    thread.add_work(work::MIGRATE);
    let queued = cpu::of(thread.cpu()).ready.lock().remove(thread);
    match queued {
        Some(thread) => enqueue(thread),
        // Running: it moves on its way to user mode. Asleep or in flight between queues: it is
        // checked when a CPU picks it.
        None => nudge(thread),
    }
}

/// Ends the current thread: it is switched away from and never resumed.
pub(super) fn leave_forever() -> ! {
    irq::disable();
    reschedule(Leave::Dead);
    unreachable!("a dead thread was resumed");
}

/// Unloads the user half of the current thread's address space on this CPU and gives up the
/// thread's reference to it. Must be called in thread context with interrupts on: the last
/// reference frees the whole space.
pub(super) fn leave_space() {
    let state = irq::save();
    let loaded =
        cpu::this().with_local(|local| local.space.take().inspect(|space| space.deactivate()));
    let own = current().with_context(|context| context.space.take());
    irq::restore(state);
    drop(loaded);
    drop(own);
}

/// Loads the space that the current thread has in its context now (after `execve`).
pub(super) fn enter_own_space() {
    let state = irq::save();
    let old = cpu::this().with_local(|local| {
        let current = local.current.clone();
        load_space_of(local, &current)
    });
    irq::restore(state);
    drop(old);
}

/// First thing a new thread does on its own stack; interrupts off.
pub(super) fn finish_first_switch() {
    finish_switch();
}

/// Gives the CPU to the next thread. Returns when this thread runs again, perhaps elsewhere.
/// Interrupts are off, before and after.
pub(super) fn reschedule(leave: Leave) {
    assert_eq!(
        percpu::preempt_count(),
        0,
        "rescheduling with preemption disabled"
    );
    let cpu = cpu::this();
    let me = percpu::cpu_id();
    cpu.take_need_resched();
    let Some((next, leave)) = pick(cpu, me, leave) else {
        return;
    };
    switch(cpu, me, next, leave);
    finish_switch();
}

/// The next thread for this CPU, or `None` when the current one simply goes on.
fn pick(cpu: &CpuSched, me: CpuId, mut leave: Leave) -> Option<(Arc<Thread>, Leave)> {
    let (current, idle) = cpu.with_local(|local| (local.current.clone(), local.idle.clone()));
    loop {
        let goes_on = leave == Leave::Ready && !current.is_idle() && current.may_run_on(me);
        let next = cpu.ready.lock().pop();
        // Others' threads are for CPUs that have nothing to do.
        let Some(next) = next.or_else(|| if goes_on { None } else { steal(me) }) else {
            cpu.set_load(usize::from(goes_on));
            if goes_on || current.is_idle() {
                return renew_slice(cpu);
            }
            return Some((idle, leave));
        };
        match (Arc::ptr_eq(&next, &current), next.may_run_on(me)) {
            // Woken before it had gone to sleep.
            (true, true) => return renew_slice(cpu),
            (true, false) => leave = Leave::Ready,
            (false, true) => {
                cpu.set_load(cpu.ready.lock().len() + 1);
                return Some((next, leave));
            }
            (false, false) => enqueue(next),
        }
    }
}

/// The current thread goes on, with a full slice.
fn renew_slice<T>(cpu: &CpuSched) -> Option<T> {
    cpu.with_local(|local| local.slice_end_ns = time::now_ns() + SLICE_NS);
    None
}

/// A thread that waits on another CPU and may run here.
fn steal(me: CpuId) -> Option<Arc<Thread>> {
    cpu::started()
        .filter(|&other| other != me && cpu::of(other).load() > 1)
        .find_map(|other| cpu::of(other).ready.lock().steal_for(me))
}

/// Switches stacks. On return this is `prev` again, perhaps on another CPU.
fn switch(cpu: &CpuSched, me: CpuId, next: Arc<Thread>, leave: Leave) {
    let next_ptr = Arc::as_ptr(&next);
    let (prev_ptr, old_space) = cpu.with_local(|local| {
        let old_space = load_space_of(local, &next);
        let now_ns = time::now_ns();
        local.account(now_ns);
        local.slice_end_ns = now_ns + SLICE_NS;
        let prev = core::mem::replace(&mut local.current, next);
        let prev_ptr = Arc::as_ptr(&prev);
        local.leaving = Some((prev, leave));
        (prev_ptr, old_space)
    });
    // Another thread of the same space or its dying thread holds a reference too, see `exit`.
    drop(old_space);
    // SAFETY: `local.leaving` keeps it alive until `finish_switch`.
    let prev = unsafe { &*prev_ptr };
    // SAFETY: `local.current` keeps it alive.
    let next = unsafe { &*next_ptr };
    assert!(
        prev.stack_is_intact(),
        "kernel stack of {prev:?} has overflowed"
    );
    publish_cpu(next, me);
    percpu::set_current_thread(next_ptr.cast_mut().cast());
    if let Some(top) = next.stack_top() {
        percpu::set_kernel_stack(top);
    }
    // SAFETY: duty (2) of `context_ptr` for both: this CPU switches from one to the other.
    let prev_context = unsafe { &mut *prev.context_ptr() };
    // SAFETY: as above; `next` is not `prev`, and on no CPU.
    let next_context = unsafe { &mut *next.context_ptr() };
    if !prev.is_idle() {
        fpu::save(&mut prev_context.fpu);
    }
    if !next.is_idle() {
        fpu::restore(&next_context.fpu);
        fsbase::write(next_context.fs_base);
    }
    let (save, resume) = (&raw mut prev_context.rsp, next_context.rsp);
    // SAFETY: `save` outlives the switch with `prev`, `resume` was saved by an earlier switch or
    // made by `new_stack`, and interrupts are off.
    unsafe { context::switch(save, resume) };
}

/// Makes this CPU the one of the thread, visible to whoever sets a work bit, see [`nudge`].
fn publish_cpu(next: &Thread, me: CpuId) {
    next.set_cpu(me);
    next.set_on_cpu(true);
    // ORDERING: Dekker with `nudge`: the CPU is published before the work bits are read on the way
    // to user mode.
    fence(Ordering::SeqCst);
}

/// Loads the address space that `next` needs and returns the reference to the one before.
fn load_space_of(local: &mut Local, next: &Thread) -> Option<Arc<mm::MemorySpace>> {
    // SAFETY: duty (2) of `context_ptr`: this CPU switches to `next`, which runs nowhere.
    let wanted = unsafe { &(*next.context_ptr()).space };
    match (wanted, &local.space) {
        (Some(wanted), Some(loaded)) if Arc::ptr_eq(wanted, loaded) => None,
        (None, None) => None,
        (Some(wanted), loaded) => {
            wanted.activate(loaded.as_deref());
            local.space.replace(wanted.clone())
        }
        (None, Some(loaded)) => {
            loaded.deactivate();
            local.space.take()
        }
    }
}

/// Runs on the stack of the thread switched to: lets go of the thread switched from.
fn finish_switch() {
    let Some((prev, leave)) = cpu::this().with_local(|local| local.leaving.take()) else {
        unreachable!("a switch without a predecessor");
    };
    prev.set_on_cpu(false);
    match leave {
        Leave::Ready if !prev.is_idle() => enqueue(prev),
        Leave::Ready | Leave::Parked | Leave::Dead => drop(prev),
    }
}

/// Puts a runnable thread into the queue of a CPU and makes that CPU look.
fn enqueue(thread: Arc<Thread>) {
    let state = irq::save();
    let target = if thread.is_on_cpu() {
        thread.cpu()
    } else {
        place(&thread)
    };
    let cpu = cpu::of(target);
    let kick = {
        let mut ready = cpu.ready.lock();
        thread.set_cpu(target);
        let kick = ready.push(thread);
        cpu.set_load(ready.len() + usize::from(kick == Kick::NotNeeded));
        kick
    };
    if kick == Kick::Needed {
        request_resched(target);
    }
    irq::restore(state);
}

/// The CPU for a thread that is not running: its last one when that is free, else the least loaded.
fn place(thread: &Thread) -> CpuId {
    let last = thread.cpu();
    cpu::started()
        .filter(|&cpu| thread.may_run_on(cpu))
        .min_by_key(|&cpu| (cpu::of(cpu).load(), cpu != last, cpu))
        .expect("the affinity of a thread holds a CPU that runs")
}

/// Sets `need_resched` on that CPU, by interrupt when it is another one.
fn request_resched(target: CpuId) {
    let state = irq::save();
    if target == percpu::cpu_id() {
        cpu::of(target).set_need_resched();
    } else {
        let targets = CpuMask::<MAX_CPUS>::only(target);
        SHOOTDOWN.post(&targets, |cpu: CpuId| cpu::of(cpu).set_need_resched());
    }
    irq::restore(state);
}

/// Hook of every return to user mode; interrupts off, before and after.
pub fn before_user_return(frame: &mut TrapFrame) {
    let me = current();
    // Each round takes at least one request off; new ones come only from outside.
    while cpu::this().need_resched() || me.work() != 0 {
        if me.work() & work::MIGRATE != 0 {
            me.clear_work(work::MIGRATE);
            reschedule(Leave::Ready);
        }
        if cpu::this().need_resched() {
            reschedule(Leave::Ready);
        }
        if me.work() & (work::EXIT | work::SIGNAL) != 0 {
            irq::enable();
            signal::handle_work(&me, frame);
            irq::disable();
        }
    }
}
