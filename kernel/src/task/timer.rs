//! Deadlines of sleeping threads, one queue per CPU, looked at by that CPU's timer interrupt, which comes when the first of
//! them is due.
//!
//! The sleeper inserts and removes its own entry; the interrupt only marks it fired and wakes the
//! thread. So the interrupt handler neither allocates nor drops a reference.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{MAX_THREADS, Thread, sched};

/// A point of the monotonic clock, in nanoseconds since boot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline {
    at_ns: u64,
}

impl Deadline {
    /// The given reading of the monotonic clock.
    pub const fn at_ns(at_ns: u64) -> Self {
        Self { at_ns }
    }

    /// This long from now; a sum too large for the clock means "never" in practice.
    pub fn after_ns(span_ns: u64) -> Self {
        Self {
            at_ns: crate::time::now_ns().saturating_add(span_ns),
        }
    }

    /// The reading of the monotonic clock that it is.
    pub const fn as_ns(self) -> u64 {
        self.at_ns
    }

    /// Whether the clock has reached it.
    pub fn has_passed(self) -> bool {
        crate::time::now_ns() >= self.at_ns
    }

    /// Time left, zero once it has passed.
    pub fn remaining_ns(self) -> u64 {
        self.at_ns.saturating_sub(crate::time::now_ns())
    }
}

#[derive(Debug)]
struct Entry {
    deadline: Deadline,
    thread: Arc<Thread>,
    fired: bool,
}

/// The sleeping threads of one CPU that have a deadline.
#[derive(Debug)]
pub(super) struct TimerQueue {
    /// By their deadlines.
    entries: Vec<Entry>,
    /// No unfired entry is earlier: a tick of a CPU without due sleepers is one comparison.
    earliest_ns: u64,
}

impl TimerQueue {
    /// An empty queue without room; [`TimerQueue::reserve`] comes before the first insert.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            earliest_ns: u64::MAX,
        }
    }

    /// Makes room for [`MAX_THREADS`]. Allocates; called once per CPU at boot.
    pub fn reserve(&mut self) {
        self.entries.reserve_exact(MAX_THREADS);
    }

    /// Adds the current thread; one entry a thread.
    pub fn insert(&mut self, thread: Arc<Thread>, deadline: Deadline) {
        self.earliest_ns = self.earliest_ns.min(deadline.at_ns);
        let at = self
            .entries
            .partition_point(|other| other.deadline <= deadline);
        let entry = Entry {
            deadline,
            thread,
            fired: false,
        };
        self.entries.insert(at, entry);
    }

    /// Takes the entry of the current thread out again, fired or not.
    pub fn remove(&mut self, thread: &Thread) -> Option<Arc<Thread>> {
        let at = self
            .entries
            .iter()
            .position(|e| core::ptr::eq(Arc::as_ptr(&e.thread), thread))?;
        Some(self.entries.remove(at).thread)
    }

    /// Takes over all entries of a queue whose CPU goes offline. Allocates nothing: a thread has one entry, and there is
    /// room for all threads.
    pub fn adopt(&mut self, other: &mut Self) {
        self.earliest_ns = self.earliest_ns.min(other.earliest_ns);
        self.entries.append(&mut other.entries);
        self.entries.sort_unstable_by_key(|entry| entry.deadline);
        other.earliest_ns = u64::MAX;
    }

    /// Wakes everyone whose deadline has come, in that order; no other comes before what it returns. Called by the timer interrupt,
    /// interrupts off.
    pub fn expire(&mut self, now_ns: u64) -> u64 {
        if now_ns < self.earliest_ns {
            return self.earliest_ns;
        }
        let due = self
            .entries
            .partition_point(|entry| entry.deadline.at_ns <= now_ns);
        let (due, later) = self.entries.split_at_mut(due);
        for entry in due.iter_mut().filter(|entry| !entry.fired) {
            entry.fired = true;
            sched::unpark(&entry.thread);
        }
        self.earliest_ns = later.first().map_or(u64::MAX, |next| next.deadline.at_ns);
        self.earliest_ns
    }
}
