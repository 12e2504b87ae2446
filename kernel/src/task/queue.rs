//! The queue of threads that are ready to run on one CPU, and who runs there.
//!
//! The most urgent thread first; equal ones in the order of their coming. Room is reserved at boot: pushing from an
//! interrupt handler does not allocate.

use alloc::collections::VecDeque;
use core::ops::Deref;

use shootdown::CpuId;

use super::scheduling::Priority;

/// Ready threads of one CPU, who runs there, and whether that CPU waits for a thread.
///
/// Generic for the tests on the host: `T` refers to a [`Ready`].
#[derive(Debug)]
pub struct ReadyQueue<T> {
    /// With the priority that each had as it came: the order holds whatever happens to the threads.
    threads: VecDeque<(Priority, T)>,
    /// Whom the CPU has chosen to run; `None` for its idle thread. It changes with the queue, so whoever
    /// pushes a thread knows whether the CPU's last choice stands.
    running: Option<Priority>,
    /// Set by the idle CPU under the queue lock before it halts, so that whoever pushes next
    /// knows that an interrupt is needed.
    idle: bool,
    /// The CPU is leaving or gone: it takes back what it is still switching away from, nothing else.
    closed: bool,
}

/// What the queue asks about a thread.
pub trait Ready {
    /// How urgent it is now.
    fn priority(&self) -> Priority;
    /// May it run there?
    fn may_run_on(&self, cpu: CpuId) -> bool;
    /// Is it still being switched away from?
    fn is_on_cpu(&self) -> bool;
}

/// Must the CPU whose queue this is be told of the push?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Kick {
    /// It halts, or runs something less urgent.
    Needed,
    /// It will look by itself.
    NotNeeded,
}

/// Where among equally urgent threads?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It was interrupted in its turn.
    First,
    /// It has had its turn, or comes anew.
    Last,
    /// It has slept, which its priority may say already: last among those of the same.
    Woken,
}

/// What the running thread has to say against giving way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its priority.
    pub priority: Priority,
    /// Its turn is over: equally urgent threads come first.
    pub is_over: bool,
}

impl<T: Deref<Target: Ready>> ReadyQueue<T> {
    /// An empty queue without room; [`ReadyQueue::reserve`] comes before the first push.
    pub const fn new() -> Self {
        Self {
            threads: VecDeque::new(),
            running: None,
            idle: false,
            closed: false,
        }
    }

    /// Makes room for that many. Allocates; called once per CPU at boot.
    pub fn reserve(&mut self, threads: usize) {
        self.threads.reserve_exact(threads);
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
    pub fn takes(&self, thread: &T::Target) -> bool {
        !self.closed || thread.is_on_cpu()
    }

    /// Adds a thread.
    pub fn push(&mut self, thread: T, place: Place) -> Kick {
        let priority = thread.priority();
        let at = self.threads.partition_point(|&(other, _)| match place {
            Place::First => other > priority,
            Place::Last | Place::Woken => other >= priority,
        });
        self.threads.insert(at, (priority, thread));
        self.kick(priority)
    }

    fn kick(&mut self, priority: Priority) -> Kick {
        let halts = core::mem::take(&mut self.idle);
        if halts || self.running.is_some_and(|running| priority > running) {
            Kick::Needed
        } else {
            Kick::NotNeeded
        }
    }

    /// Decides who runs next: the first thread, which leaves the queue, or, given as `None`, whoever has the
    /// `claim`, or without one the idle thread.
    pub fn choose(&mut self, claim: Option<Claim>) -> Option<T> {
        self.idle = false;
        let goes_first = |priority: Priority| match claim {
            None => true,
            Some(claim) if claim.is_over => priority >= claim.priority,
            Some(claim) => priority > claim.priority,
        };
        let next = match self.threads.front() {
            Some(&(priority, _)) if goes_first(priority) => self.threads.pop_front(),
            _ => None,
        };
        self.running = match &next {
            Some((priority, _)) => Some(*priority),
            None => claim.map(|claim| claim.priority),
        };
        next.map(|(_, thread)| thread)
    }

    /// Has a thread run next that was never queued, and with it whoever ran so far gives way: true unless somebody who waits
    /// is more urgent, or the queue is closed.
    #[must_use]
    pub fn hand_over(&mut self, priority: Priority) -> bool {
        let may = !self.closed && self.most_urgent() <= Some(priority);
        if may {
            self.running = Some(priority);
        }
        may
    }

    /// Takes the first thread that another CPU may run instead, if it is at least that urgent.
    pub fn steal_for(&mut self, thief: CpuId, least: Priority) -> Option<T> {
        let at = self.threads.iter().position(|(priority, thread)| {
            *priority >= least && thread.may_run_on(thief) && !thread.is_on_cpu()
        })?;
        self.threads.remove(at).map(|(_, thread)| thread)
    }

    /// Takes this thread out when it is queued here and not still being switched away from.
    pub fn remove(&mut self, thread: *const T::Target) -> Option<T> {
        let at = self.position(thread)?;
        if self.threads[at].1.is_on_cpu() {
            return None;
        }
        self.threads.remove(at).map(|(_, thread)| thread)
    }

    /// Puts this thread, if it is queued here, where its priority now wants it. `None` if it is not.
    pub fn sort_again(&mut self, thread: *const T::Target) -> Option<Kick> {
        let at = self.position(thread)?;
        let (_, thread) = self.threads.remove(at)?;
        Some(self.push(thread, Place::Last))
    }

    fn position(&self, thread: *const T::Target) -> Option<usize> {
        self.threads
            .iter()
            .position(|(_, queued)| core::ptr::eq(&raw const **queued, thread))
    }

    /// Says that the CPU is about to halt. False when there is work after all.
    #[must_use]
    pub fn announce_idle(&mut self) -> bool {
        self.idle = self.threads.is_empty();
        self.idle
    }

    /// Number of ready threads.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// The most urgent thread that waits.
    pub fn most_urgent(&self) -> Option<Priority> {
        self.threads.front().map(|&(priority, _)| priority)
    }

    /// Whom the CPU has chosen to run; `None` for its idle thread.
    pub fn running(&self) -> Option<Priority> {
        self.running
    }
}

impl<T: Deref<Target: Ready>> Default for ReadyQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}
