//! Shim of `task`: no process is ever current, and every thread of the host can be a thread of the kernel.

use std::cell::OnceCell;
use std::ops::Deref;

use crate::sync::Mutex;
use alloc::sync::Arc;
use shootdown::CpuId;

#[allow(dead_code)]
#[path = "../../src/task/list.rs"]
mod list;
#[allow(dead_code)]
#[path = "../../src/task/queue.rs"]
pub mod queue;
#[allow(dead_code)]
#[path = "../../src/task/scheduling.rs"]
pub mod scheduling;

pub use list::ThreadList;
use scheduling::{Priority, Scheduling};

/// A thread of the host, with what lists and queues of the kernel ask about it.
#[derive(Debug)]
pub struct Thread {
    next_waiter: Mutex<Option<Arc<Thread>>>,
    host: std::thread::Thread,
    scheduling: Scheduling,
}

impl Thread {
    /// The running thread of the host, scheduled by that.
    pub fn new(scheduling: Scheduling) -> Arc<Self> {
        Arc::new(Self {
            next_waiter: Mutex::new(None),
            host: std::thread::current(),
            scheduling,
        })
    }
}

impl queue::Ready for Thread {
    fn priority(&self) -> Priority {
        self.scheduling.priority()
    }

    fn may_run_on(&self, _: CpuId) -> bool {
        true
    }

    fn is_on_cpu(&self) -> bool {
        false
    }
}

/// The running thread.
#[derive(Debug)]
pub struct Current(Arc<Thread>);

impl Current {
    /// A counted reference to it.
    pub fn to_arc(&self) -> Arc<Thread> {
        self.0.clone()
    }
}

impl Deref for Current {
    type Target = Thread;

    fn deref(&self) -> &Thread {
        &self.0
    }
}

/// The running thread.
pub fn current() -> Current {
    thread_local! {
        static CURRENT: OnceCell<Arc<Thread>> = const { OnceCell::new() };
    }
    CURRENT.with(|cell| Current(cell.get_or_init(|| Thread::new(Scheduling::NORMAL)).clone()))
}

/// Sleeps until [`unpark`], or for no reason.
pub fn park_uninterrupted() {
    std::thread::park();
}

/// Wakes the thread, or makes its next sleep end at once.
pub fn unpark(thread: &Arc<Thread>) {
    thread.host.unpark();
}
