//! Which CPU a ready thread goes to, and how that CPU learns of it.
//!
//! A woken thread may still be on its way off its CPU. Until `on_cpu` turns false it is queued on
//! that very CPU, which cannot pick it before the switch is complete.

use alloc::sync::Arc;
use core::sync::atomic::{Ordering, fence};

use shootdown::{CpuId, CpuMask};

use crate::arch::percpu;
use crate::platform::{MAX_CPUS, SHOOTDOWN};
use crate::task::Thread;
use crate::task::cpu;
use crate::task::queue::Kick;
use crate::task::thread::work;

/// Queues a new thread on the least loaded CPU that it may use.
pub(in crate::task) fn start(thread: Arc<Thread>) {
    enqueue(thread);
}

/// Pins a thread to these CPUs, at least one of which is usable. It moves at once.
pub fn set_affinity(thread: &Arc<Thread>, cpus: &CpuMask<MAX_CPUS>) {
    thread.affinity.set(cpus);
    migrate(thread);
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
    let queued = cpu::of(thread.cpu()).ready.lock().remove(thread);
    match queued {
        Some(thread) => enqueue(thread),
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

/// Puts a runnable thread into the queue of a CPU and makes that CPU look.
pub(super) fn enqueue(thread: Arc<Thread>) {
    percpu::preempt_disable();
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
        let kick = ready.push(thread);
        cpu.set_load(ready.len() + usize::from(kick == Kick::NotNeeded));
        break (target, kick);
    };
    if kick == Kick::Needed {
        request_resched(target);
    }
    percpu::preempt_enable();
}

/// The CPU for a thread that is not running: its last one when that is free, else the least loaded. If all that it may
/// use are offline, it may use every CPU from now on, as on Linux.
fn cpu_for(thread: &Thread) -> CpuId {
    let last = thread.cpu();
    let least_loaded = || {
        cpu::open()
            .filter(|&cpu| thread.may_run_on(cpu))
            .min_by_key(|&cpu| (cpu::of(cpu).load(), cpu != last, cpu))
    };
    least_loaded().unwrap_or_else(|| {
        thread.affinity.widen();
        thread.add_work(work::UNPINNED);
        least_loaded().expect("CPU 0 never goes offline")
    })
}

/// Has that CPU choose a thread anew, by interrupt when it is another one.
pub(super) fn request_resched(target: CpuId) {
    percpu::preempt_disable();
    if target == percpu::cpu_id() {
        percpu::set_need_resched();
    } else {
        let targets = CpuMask::<MAX_CPUS>::only(target);
        SHOOTDOWN.post(&targets, |_: CpuId| percpu::set_need_resched());
    }
    // This thread may be the one to give way.
    percpu::preempt_enable();
}
