//! Which CPU a ready thread goes to, and how that CPU learns of it.
//!
//! A woken thread may still be on its way off its CPU. Until `on_cpu` turns false it is queued on
//! that very CPU, which cannot pick it before the switch is complete.

use alloc::sync::Arc;
use core::sync::atomic::{Ordering, fence};

use shootdown::{CpuId, CpuMask};

use super::park::unpark;
use crate::arch::{apic, percpu};
use crate::cpus::Cpus;
use crate::preempt;
use crate::task::cpu;
use crate::task::queue::{Kick, Place, Ready};
use crate::task::thread::work;
use crate::task::wake_budget::Turn;
use crate::task::{Priority, Scheduling, Thread};

/// Queues a new thread on the least loaded CPU that it may use.
pub(in crate::task) fn start(thread: Arc<Thread>) {
    enqueue(thread, Place::Last);
}

/// Pins a thread to these CPUs, at least one of which is usable. It moves at once.
pub fn set_affinity(thread: &Arc<Thread>, cpus: &CpuMask<Cpus>) {
    thread.affinity.set(cpus);
    migrate(thread);
}

/// Changes what a thread is scheduled by, at once: it may lose its CPU, or get one.
pub fn set_scheduling(thread: &Arc<Thread>, scheduling: Scheduling) {
    thread.set_scheduling(scheduling);
    loop {
        let at = thread.cpu();
        let sorted = {
            let cpu = cpu::of(at);
            let mut ready = cpu.ready.lock();
            let sorted = ready.sort_again(Arc::as_ptr(thread));
            cpu.publish(&ready);
            sorted
        };
        match sorted {
            Some(Kick::Needed) => return request_resched(at),
            Some(Kick::NotNeeded) => return,
            // It moved: whoever moved it may have read the old priority.
            None if thread.cpu() != at => {}
            // It runs, and may have to give way now. Asleep, it gets its place as it wakes.
            None => return request_resched(at),
        }
    }
}

/// How many CPUs take threads.
pub fn cpu_count() -> usize {
    cpu::open().count()
}

/// Those CPUs as the bits of a word.
pub fn usable_cpu_bits() -> u64 {
    cpu::open_bits()
}

/// Applies a changed affinity mask to a thread, which may be running, queued or asleep.
fn migrate(thread: &Arc<Thread>) {
    thread.add_work(work::MIGRATE);
    let queued = {
        let cpu = cpu::of(thread.cpu());
        let mut ready = cpu.ready.lock();
        let queued = ready.remove(Arc::as_ptr(thread));
        cpu.publish(&ready);
        queued
    };
    match queued {
        Some(thread) => enqueue(thread, Place::Last),
        // Running: it moves on its way to user mode. Asleep or in flight between queues: it is
        // checked when a CPU picks it.
        None => nudge(thread),
    }
}

/// Makes the CPU where the thread runs look at its work bits soon, wherever it is now.
/// Interrupts its CPU when that is another one; a sleeping thread is not woken.
pub(in crate::task) fn nudge(thread: &Thread) {
    // ORDERING: Dekker with `publish_cpu`: either the CPU that takes the thread sees the work bit
    // set before this call, or this sees that CPU.
    fence(Ordering::SeqCst);
    request_resched(thread.cpu());
}

/// Tells a server that it is one no more: it looks as soon as it can.
pub fn tell_server(thread: &Arc<Thread>) {
    thread.add_work(work::DISMISSED);
    unpark(thread);
    nudge(thread);
}

/// Puts a runnable thread into the queue of a CPU and has that CPU look if the thread goes before what runs there.
pub(super) fn enqueue(thread: Arc<Thread>, place: Place) {
    preempt::disable();
    let (target, kick) = loop {
        let target = if thread.is_on_cpu() {
            thread.cpu()
        } else {
            cpu_for(&thread)
        };
        let cpu = cpu::of(target);
        let mut ready = cpu.ready.lock();
        // The CPU may have been told to go offline since it was chosen, or have finished the switch.
        if !ready.takes(&thread) {
            continue;
        }
        thread.set_cpu(target);
        match place {
            // Perhaps on another CPU than before, whose budget counts from now on.
            Place::First | Place::Last => {
                let (turn, _) = thread.turn().look(false, false, &cpu.wake_budget);
                thread.set_turn(turn);
            }
            Place::Woken => thread.set_turn(Turn::of_woken(&cpu.wake_budget)),
        }
        let kick = ready.push(thread, place);
        cpu.publish(&ready);
        break (target, kick);
    };
    if kick == Kick::Needed {
        request_resched(target);
    }
    preempt::enable();
}

/// The CPU for a thread that is not running. If all that it may use are offline, it may use every CPU from now on, as on
/// Linux.
fn cpu_for(thread: &Thread) -> CpuId {
    let cost = |cpu: CpuId| match thread.priority().is_real_time() {
        true => urgent_cost(thread, cpu),
        false => normal_cost(thread, cpu),
    };
    let cheapest = || {
        cpu::open()
            .filter(|&cpu| thread.may_run_on(cpu))
            .min_by_key(|&cpu| cost(cpu))
    };
    cheapest().unwrap_or_else(|| {
        thread.affinity.widen();
        thread.add_work(work::UNPINNED);
        cheapest().expect("CPU 0 never goes offline")
    })
}

/// Which of two CPUs is better for a thread: the lesser. What comes first in it counts most.
type Cost = (bool, bool, Option<Priority>, (u32, bool), CpuId);

/// A real-time thread is to run at once: where it ran last if that CPU does something less urgent, else where the least
/// urgent work is done. It was mostly woken by its last CPU's timer, so that CPU takes interrupts, which another may not.
fn urgent_cost(thread: &Thread, id: CpuId) -> Cost {
    let (cpu, is_elsewhere) = (cpu::of(id), id != thread.cpu());
    let busy_with = cpu.busy_with();
    let would_wait = busy_with >= Some(thread.priority());
    (would_wait, is_elsewhere, busy_with, (cpu.load(), false), id)
}

/// Others keep clear of real-time threads and go where the fewest threads are; the last CPU is as good as any other that is
/// not better.
fn normal_cost(thread: &Thread, id: CpuId) -> Cost {
    let (cpu, is_elsewhere) = (cpu::of(id), id != thread.cpu());
    let is_beside_urgent = cpu.busy_with().is_some_and(Priority::is_real_time);
    let load = (cpu.load(), is_elsewhere);
    (is_beside_urgent, false, None, load, id)
}

/// Has that CPU choose a thread anew, by interrupt when it is another one.
pub(super) fn request_resched(target: CpuId) {
    preempt::disable();
    if target == percpu::cpu_id() {
        percpu::set_need_resched();
    } else {
        apic::send_reschedule(target);
    }
    // This thread may be the one to give way.
    preempt::enable();
}
