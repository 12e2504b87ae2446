//! [`Task`]: a thread that is a CPU at times.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::futex::Mailbox;
use crate::signal::ThreadId;

/// One thread of the machine.
#[derive(Debug)]
pub(crate) struct Task {
    thread: AtomicI32,
    /// The number of a CPU, plus one, for which it is to be from now on.
    pub(crate) grant: Mailbox,
    /// The space that it runs in, plus one. Its own, and its giver's once it has stopped.
    space: AtomicU32,
}

impl Task {
    pub(crate) const fn new() -> Self {
        Self {
            thread: AtomicI32::new(0),
            grant: Mailbox::new(),
            space: AtomicU32::new(0),
        }
    }

    /// The calling thread is this task.
    pub(crate) fn adopt(&self) {
        // ORDERING: Release; pairs with `thread`. (The queue's lock orders it for tasks, a join for idle threads.)
        self.thread.store(ThreadId::mine().0, Ordering::Release);
        self.set_space(None);
    }

    pub(crate) fn thread(&self) -> ThreadId {
        // ORDERING: see `adopt`.
        ThreadId(self.thread.load(Ordering::Acquire))
    }

    pub(crate) fn space(&self) -> Option<usize> {
        (self.space.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    pub(crate) fn set_space(&self, space: Option<usize>) {
        let word = space.map_or(0, |space| space as u32 + 1);
        self.space.store(word, Ordering::Relaxed);
    }
}
