//! The queue of threads that are ready to run on one CPU.
//!
//! First in, first out. Room for every thread is reserved at boot: pushing from an interrupt
//! handler never allocates.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use shootdown::CpuId;

use super::{MAX_THREADS, Thread};

/// Ready threads of one CPU, and whether that CPU waits for one.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    threads: VecDeque<Arc<Thread>>,
    /// Set by the idle CPU under the queue lock before it halts, so that whoever pushes next
    /// knows that an interrupt is needed.
    idle: bool,
    /// The CPU is leaving or gone: it takes back what it is still switching away from, nothing else.
    closed: bool,
}

/// Must the CPU whose queue this is be interrupted to notice the push?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Kick {
    Needed,
    NotNeeded,
}

impl ReadyQueue {
    /// An empty queue without room; [`ReadyQueue::reserve`] comes before the first push.
    pub const fn new() -> Self {
        Self {
            threads: VecDeque::new(),
            idle: false,
            closed: false,
        }
    }

    /// Makes room for [`MAX_THREADS`]. Allocates; called once per CPU at boot.
    pub fn reserve(&mut self) {
        self.threads.reserve_exact(MAX_THREADS);
    }

    /// Refuses threads from now on, but those that are still being switched away from here: only this CPU can pass these
    /// on. So a CPU that has finished its last switch and finds its queue empty finds it empty for good.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Undoes [`close`](Self::close).
    pub fn reopen(&mut self) {
        self.closed = false;
    }

    /// Whether the thread may be pushed. Ask again when the lock was given up in between.
    pub fn takes(&self, thread: &Thread) -> bool {
        !self.closed || thread.is_on_cpu()
    }

    /// Appends a thread.
    pub fn push(&mut self, thread: Arc<Thread>) -> Kick {
        debug_assert!(
            self.threads.len() < self.threads.capacity(),
            "ready queue would allocate"
        );
        self.threads.push_back(thread);
        if core::mem::take(&mut self.idle) {
            Kick::Needed
        } else {
            Kick::NotNeeded
        }
    }

    /// Takes the thread that waited longest.
    pub fn pop(&mut self) -> Option<Arc<Thread>> {
        self.idle = false;
        self.threads.pop_front()
    }

    /// Takes the longest-waiting thread that another CPU may run instead.
    pub fn steal_for(&mut self, thief: CpuId) -> Option<Arc<Thread>> {
        let at = self
            .threads
            .iter()
            .position(|t| t.may_run_on(thief) && !t.is_on_cpu())?;
        self.threads.remove(at)
    }

    /// Takes this thread out when it is queued here and not still being switched away from.
    pub fn remove(&mut self, thread: &Thread) -> Option<Arc<Thread>> {
        let at = self
            .threads
            .iter()
            .position(|t| core::ptr::eq(Arc::as_ptr(t), thread) && !t.is_on_cpu())?;
        self.threads.remove(at)
    }

    /// Says that the CPU is about to halt. False when there is work after all.
    #[must_use]
    pub fn announce_idle(&mut self) -> bool {
        self.idle = self.threads.is_empty();
        self.idle
    }

    /// Number of ready threads.
    pub fn len(&self) -> usize {
        self.threads.len()
    }
}
