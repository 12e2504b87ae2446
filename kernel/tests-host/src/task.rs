//! Shim of `task`: no process is ever current, and every thread of the host can be a thread of the kernel.

use std::cell::OnceCell;

use crate::sync::{Link, Mutex, RUNNING, Sleeper};
use alloc::sync::Arc;
use shootdown::CpuId;

#[allow(dead_code)]
#[path = "../../src/task/queue.rs"]
pub mod queue;
#[allow(dead_code)]
#[path = "../../src/task/scheduling.rs"]
pub mod scheduling;

#[path = "../../src/task/wake_budget.rs"]
pub mod wake_budget;

use scheduling::{Priority, Scheduling};

/// A thread of the host, with what lists and queues of the kernel ask about it.
#[derive(Debug)]
pub struct Thread {
    next_sleeper: Link<dyn Sleeper>,
    host: std::thread::Thread,
    scheduling: Scheduling,
}

impl Thread {
    /// The running thread of the host, scheduled by that.
    pub fn new(scheduling: Scheduling) -> Arc<Self> {
        Arc::new(Self {
            next_sleeper: Mutex::new(None),
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

impl Sleeper for Thread {
    fn link(&self) -> &Link<dyn Sleeper> {
        &self.next_sleeper
    }

    fn urgency(&self) -> u32 {
        self.scheduling.priority().as_u32()
    }

    fn sleep(&self) {
        std::thread::park();
    }

    fn wake(self: Arc<Self>) {
        self.host.unpark();
    }
}

/// The running thread.
pub fn current() -> Arc<dyn Sleeper> {
    thread_local! {
        static CURRENT: OnceCell<Arc<Thread>> = const { OnceCell::new() };
    }
    CURRENT.with(|cell| cell.get_or_init(|| Thread::new(Scheduling::NORMAL)).clone())
}

/// Tells locks which thread runs; any number of times.
pub fn init() {
    RUNNING.call_once(|| current);
}
