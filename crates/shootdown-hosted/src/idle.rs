//! [`Idle`]: the jobs of a CPU's idle thread, and whether it sleeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A closure of [`Machine::run_on`](crate::Machine::run_on), which waits for it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// One CPU's idle thread, as others see it.
#[derive(Default)]
pub(crate) struct Idle {
    jobs: Mutex<Jobs>,
    has_jobs: AtomicBool,
    halted: AtomicBool,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    /// The CPU is online, or has jobs to do before it goes.
    is_open: bool,
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idle")
            .field("has_jobs", &self.has_jobs())
            .field("is_halted", &self.is_halted())
            .finish()
    }
}

impl Idle {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the CPU takes it. The caller has interrupts off, or is no CPU.
    pub(crate) fn push(&self, job: Job) -> bool {
        let mut jobs = self.jobs();
        if jobs.is_open {
            jobs.queue.push_back(job);
            self.has_jobs.store(true, Ordering::Relaxed);
        }
        jobs.is_open
    }

    pub(crate) fn pop(&self) -> Option<Job> {
        let mut jobs = self.jobs();
        let job = jobs.queue.pop_front();
        self.has_jobs
            .store(!jobs.queue.is_empty(), Ordering::Relaxed);
        job
    }

    pub(crate) fn open(&self) {
        self.jobs().is_open = true;
    }

    /// Takes no more jobs, if none is left; true if so.
    pub(crate) fn close(&self) -> bool {
        let mut jobs = self.jobs();
        jobs.is_open = !jobs.queue.is_empty();
        !jobs.is_open
    }

    pub(crate) fn has_jobs(&self) -> bool {
        self.has_jobs.load(Ordering::Relaxed)
    }

    /// Whether it sleeps or is about to; the queue's lock orders this against tasks that become ready.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_halted(&self, is_halted: bool) {
        self.halted.store(is_halted, Ordering::Relaxed);
    }
}
