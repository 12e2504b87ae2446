//! Which worker a thread is, and which space that has entered.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::boot;
use crate::cpus::MAX_CPUS;
use crate::task;

/// Kernel threads for each CPU: so that they preempt each other.
pub(super) const THREADS_PER_CPU: usize = 2;
const MAX_WORKERS: usize = MAX_CPUS * THREADS_PER_CPU;
/// In `ENTERED`: no space.
const NOWHERE: usize = usize::MAX;

/// The thread of each worker; 0 for none.
static TIDS: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];
/// The space that each worker has entered.
static ENTERED: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(NOWHERE) }; MAX_WORKERS];

/// The running thread is that worker's.
pub(super) fn i_am(worker: usize) {
    TIDS[worker].store(own_tid(), Ordering::Relaxed);
}

fn own_tid() -> usize {
    task::current().tid().as_u32() as usize
}

/// The worker that runs on this CPU, or was interrupted there.
fn worker_here() -> Option<usize> {
    let tid = own_tid();
    let workers = boot::info().cpus * THREADS_PER_CPU;
    TIDS[..workers]
        .iter()
        .position(|other| tid != 0 && other.load(Ordering::Relaxed) == tid)
}

/// The space that the running thread has entered. Interrupts are off, or the answer may be of another thread.
pub(super) fn entered() -> Option<usize> {
    let space = ENTERED[worker_here()?].load(Ordering::Relaxed);
    (space != NOWHERE).then_some(space)
}

/// Says which it is now.
pub(super) fn note_entered(space: Option<usize>) {
    if let Some(worker) = worker_here() {
        ENTERED[worker].store(space.unwrap_or(NOWHERE), Ordering::Relaxed);
    }
}
