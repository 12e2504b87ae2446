//! Choosing the next thread and switching to it.
//!
//! The most urgent thread of a CPU runs; those that take turns do so there. Besides parking, a thread gives up its CPU when that is due (`need_resched`: its slice is
//! over, or somebody more urgent is ready), and does so at once unless preemption is off: as the interrupt that
//! found out returns, at the last `preempt_enable`, or on the way to user mode.
//!
//! No thread is switched away from with preemption off, so the count is 0 on both sides of a switch and can live
//! with the CPU.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use shootdown::CpuId;

use super::defer::catch_up;
use super::fetch::{fetch, fetch_urgent};
use super::place::enqueue;
use super::space::load_space_of;
use crate::arch::trap::TrapFrame;
use crate::arch::{context, fpu, fsbase, percpu};
use crate::irq;
use crate::task::cpu::{self, CpuSched, Leave, Mode};
use crate::task::current::{current, try_current};
use crate::task::queue::{Claim, Place, Ready};
use crate::task::scheduling::SLICE_NS;
use crate::task::thread::work;
use crate::task::wake_budget::Turn;
use crate::task::{Priority, Thread, signal};
use crate::time;
use crate::zerocopy;

/// Hook of the timer's ticks; interrupts off.
pub fn timer_tick(mode: Mode) {
    let cpu = cpu::this();
    if !cpu.is_started() {
        return;
    }
    let now_ns = time::now_ns();
    cpu.with_local(|local| {
        cpu.account(local, now_ns, mode);
        let current = &local.current;
        let has_slices = !current.is_idle() && current.scheduling().has_slices();
        let slice_is_over = has_slices && now_ns >= local.slice_end_ns;
        let (_, is_over) = current.turn().look(slice_is_over, false, &cpu.wake_budget);
        if is_over {
            percpu::set_need_resched();
        }
    });
}

/// Gives way to another thread if that is due and may be. Called by [`preempt::enable`](crate::preempt::enable), in any context.
#[cold]
pub fn preempt() {
    let state = irq::save();
    if state.is_enabled() {
        preempt_interrupted();
    }
    irq::restore(state);
}

/// Hook of every return from an interrupt into kernel code that had interrupts on; interrupts off, before and
/// after. Gives way to another thread if that is due and may be.
pub fn preempt_interrupted() {
    if percpu::need_resched() && percpu::preempt_count() == 0 && runs_a_thread() {
        reschedule(Leave::Ready);
    }
}

/// Not so before the scheduler starts, and in the idle loop, which looks by itself.
fn runs_a_thread() -> bool {
    try_current().is_some_and(|thread| !thread.is_idle())
}

/// Hook of every return to user mode; interrupts off, before and after.
pub fn before_user_return(frame: &mut TrapFrame) {
    let me = current();
    // Each round takes at least one request off; new ones come only from outside.
    while percpu::need_resched() || me.work() != 0 {
        if me.work() & work::MIGRATE != 0 {
            me.clear_work(work::MIGRATE);
            reschedule(Leave::Ready);
        }
        if percpu::need_resched() {
            reschedule(Leave::Ready);
        }
        if me.work() & work::UNPINNED != 0 {
            me.clear_work(work::UNPINNED);
            irq::enable();
            report_unpinned(&me);
            irq::disable();
        }
        if me.work() & work::DISMISSED != 0 {
            me.clear_work(work::DISMISSED);
            irq::enable();
            zerocopy::look(&me);
            irq::disable();
        }
        if me.work() & (work::EXIT | work::SIGNAL) != 0 {
            irq::enable();
            signal::handle_work(&me, frame);
            irq::disable();
        }
    }
}

/// One line for each of the first few: when CPUs come and go all the time, so does this.
fn report_unpinned(me: &Thread) {
    const REPORTS: u32 = 8;
    static REPORTED: AtomicU32 = AtomicU32::new(0);
    let number = REPORTED.fetch_add(1, Ordering::Relaxed);
    if number < REPORTS {
        let (tid, name) = (me.tid().as_u32(), me.name());
        log::info!("thread {tid} ({name}) was pinned to CPUs that are offline; it may use all");
    }
    if number == REPORTS {
        log::info!("more threads lost their CPUs; further ones are not reported");
    }
}

/// Lets equally urgent threads of this CPU run first, if there are any.
///
/// Context: a user thread inside a system call, no lock held, preemption enabled.
pub fn yield_now() {
    let state = irq::save();
    reschedule(Leave::Yielded);
    irq::restore(state);
}

/// The idle thread gives way to whatever is ready. Interrupts are off.
pub(in crate::task) fn reschedule_idle() {
    super::space::rest_again();
    reschedule(Leave::Ready);
}

/// Ends the current thread: it is switched away from and never resumed.
pub(in crate::task) fn leave_forever() -> ! {
    irq::disable();
    reschedule(Leave::Dead);
    unreachable!("a dead thread was resumed");
}

/// First thing a new thread does on its own stack; interrupts off.
pub(in crate::task) fn finish_first_switch() {
    finish_switch();
}

/// Gives the CPU to the next thread. Returns when this thread runs again, perhaps elsewhere.
/// Interrupts are off, before and after.
pub(in crate::task) fn reschedule(leave: Leave) {
    assert_eq!(
        percpu::preempt_count(),
        0,
        "rescheduling with preemption disabled"
    );
    let cpu = cpu::this();
    let me = percpu::cpu_id();
    percpu::clear_need_resched();
    // Before somebody is taken out of the queue: whether anybody waits counts.
    cpu.with_local(|local| cpu.account(local, time::now_ns(), Mode::User));
    let Some((next, leave)) = pick(cpu, me, leave) else {
        return;
    };
    switch(cpu, me, next, leave, Slice::Own);
    finish_switch();
}

/// Gives the CPU to `next`, which no longer counts as asleep and is in no queue, while the current thread counts as
/// asleep. Goes by the queue where that cannot be at once. Interrupts are off, before and after; otherwise as [`reschedule`].
pub(super) fn give_way_to(next: Arc<Thread>) {
    let cpu = cpu::this();
    let me = percpu::cpu_id();
    cpu.with_local(|local| cpu.account(local, time::now_ns(), Mode::User));
    // It goes on in the turn of this one.
    next.set_turn(match current().priority().is_real_time() {
        true => Turn::of_woken(&cpu.wake_budget),
        false => current().turn(),
    });
    if !goes_next(cpu, me, &next) {
        enqueue(next, Place::Woken);
        return reschedule(Leave::Parked);
    }
    assert_eq!(
        percpu::preempt_count(),
        0,
        "handing over with preemption off"
    );
    switch(cpu, me, next, Leave::Parked, Slice::Inherited);
    finish_switch();
}

/// Whether `next` may be the next thread of this CPU, which then counts as running it.
fn goes_next(cpu: &CpuSched, me: CpuId, next: &Thread) -> bool {
    if percpu::need_resched() || !next.may_run_on(me) || next.is_on_cpu() {
        return false;
    }
    let mut ready = cpu.ready.lock();
    let may = ready.hand_over(next.priority());
    cpu.publish(&ready);
    may
}

/// The next thread for this CPU, or `None` when the current one simply goes on.
fn pick(cpu: &CpuSched, me: CpuId, mut leave: Leave) -> Option<(Arc<Thread>, Leave)> {
    let (current, idle) = cpu.with_local(|local| (local.current.clone(), local.idle.clone()));
    let mut is_over = false;
    loop {
        let stays_open = cpu.is_open();
        let is_ready = matches!(leave, Leave::Ready | Leave::Yielded);
        let goes_on = is_ready && !current.is_idle() && stays_open && current.may_run_on(me);
        let (slice_is_over, yields) = (slice_is_over(cpu, &current), leave == Leave::Yielded);
        let (turn, is_over_now) = current.turn().look(slice_is_over, yields, &cpu.wake_budget);
        is_over |= is_over_now;
        if is_ready {
            current.set_turn(turn);
        }
        let claim = goes_on.then(|| Claim {
            priority: current.priority(),
            is_over,
        });
        if stays_open {
            fetch_urgent(cpu, me, claim);
        }
        let Some(next) = choose(cpu, claim) else {
            // Others' threads are for CPUs that have nothing to do.
            if stays_open && !goes_on && fetch(me, Priority::NORMAL) {
                continue;
            }
            if goes_on || current.is_idle() {
                return renew_slice(cpu, claim);
            }
            return Some((idle, leave));
        };
        match (
            Arc::ptr_eq(&next, &current),
            stays_open && next.may_run_on(me),
        ) {
            // Woken before it had gone to sleep.
            (true, true) => return renew_slice(cpu, None),
            (true, false) => leave = Leave::Yielded,
            (false, true) => {
                if claim.is_some_and(|claim| claim.is_over) {
                    leave = Leave::Yielded;
                }
                return Some((next, leave));
            }
            (false, false) => enqueue(next, Place::Last),
        }
    }
}

fn choose(cpu: &CpuSched, claim: Option<Claim>) -> Option<Arc<Thread>> {
    let mut ready = cpu.ready.lock();
    let next = ready.choose(claim);
    cpu.publish(&ready);
    next
}

/// Whether the running thread has had its turn.
fn slice_is_over(cpu: &CpuSched, current: &Thread) -> bool {
    let end_ns = cpu.with_local(|local| local.slice_end_ns);
    current.scheduling().has_slices() && time::now_ns() >= end_ns
}

/// The current thread goes on, with a full slice unless it is in the middle of one.
fn renew_slice<T>(cpu: &CpuSched, claim: Option<Claim>) -> Option<T> {
    if claim.is_none_or(|claim| claim.is_over) {
        cpu.with_local(|local| local.slice_end_ns = time::now_ns() + SLICE_NS);
    }
    None
}

/// How long the next thread may run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slice {
    /// A whole slice, or what is left of its last one.
    Own,
    /// What the one before has left: or two threads could keep a CPU between them.
    Inherited,
}

/// Switches stacks. On return this is `prev` again, perhaps on another CPU.
fn switch(cpu: &CpuSched, me: CpuId, next: Arc<Thread>, leave: Leave, slice: Slice) {
    // Whoever runs next may be in the middle of an access to user memory.
    catch_up();
    let next_ptr = Arc::as_ptr(&next);
    let (prev_ptr, old_space) = cpu.with_local(|local| {
        let old_space = load_space_of(local, &next);
        let now_ns = time::now_ns();
        let left_ns = match leave {
            // Over by now, perhaps, but its turn was interrupted.
            Leave::Ready => local.slice_end_ns.saturating_sub(now_ns).max(1),
            _ => 0,
        };
        let left = local.current.slice_left_ns();
        left.store(left_ns, Ordering::Relaxed);
        if slice == Slice::Own {
            let slice_ns = match next.slice_left_ns().load(Ordering::Relaxed) {
                0 => SLICE_NS,
                left_ns => left_ns,
            };
            local.slice_end_ns = now_ns + slice_ns;
        }
        let prev = core::mem::replace(&mut local.current, next);
        let prev_ptr = Arc::as_ptr(&prev);
        local.leaving = Some((prev, leave));
        (prev_ptr, old_space)
    });
    // The last reference to a dead process's space, whose memory is gone, or one of several.
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
    match (prev.is_idle(), next.is_idle()) {
        (false, false) => fpu::exchange(&mut prev_context.fpu, &next_context.fpu),
        (false, true) => fpu::save(&mut prev_context.fpu),
        (true, false) => fpu::restore(&next_context.fpu),
        (true, true) => {}
    }
    if !next.is_idle() {
        fsbase::write(next_context.fs_base);
    }
    let (save, resume) = (&raw mut prev_context.rsp, next_context.rsp);
    // SAFETY: `save` outlives the switch with `prev`, `resume` was saved by an earlier switch or
    // made by `new_stack`, and interrupts are off.
    unsafe { context::switch(save, resume) };
}

/// Makes this CPU the one of the thread, visible to whoever sets a work bit, see `place::nudge`.
fn publish_cpu(next: &Thread, me: CpuId) {
    next.set_cpu(me);
    next.set_on_cpu(true);
    // ORDERING: Dekker with `nudge`: the CPU is published before the work bits are read on the way
    // to user mode.
    fence(Ordering::SeqCst);
}

/// Runs on the stack of the thread switched to: lets go of the thread switched from.
fn finish_switch() {
    let Some((prev, leave)) = cpu::this().with_local(|local| local.leaving.take()) else {
        unreachable!("a switch without a predecessor");
    };
    prev.set_on_cpu(false);
    match leave {
        Leave::Ready if !prev.is_idle() => enqueue(prev, Place::First),
        Leave::Yielded if !prev.is_idle() => enqueue(prev, Place::Last),
        Leave::Ready | Leave::Yielded | Leave::Parked | Leave::Dead => drop(prev),
    }
}
