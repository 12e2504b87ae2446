//! Waiting inside the kernel for a condition that another thread brings about.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::current::current;
use super::timer::Deadline;
use super::{Thread, sched};
use crate::errno::Errno;
use crate::sync::Mutex;

/// Threads that wait for something to happen to one object (a pipe, a child).
///
/// The condition lives with the object; whoever changes it calls [`WaitQueue::wake_all`] after the
/// change. At most `MAX_THREADS` entries.
#[derive(Debug)]
pub struct WaitQueue {
    waiters: Mutex<Vec<Arc<Thread>>>,
}

impl WaitQueue {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self {
            waiters: Mutex::new(Vec::new()),
        }
    }

    /// Sleeps until `ready` gives a value.
    ///
    /// # Errors
    /// `Errno::RESTART` when a signal came first, ETIMEDOUT at the deadline.
    pub fn wait_until<T>(
        &self,
        deadline: Option<Deadline>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Errno> {
        if let Some(value) = ready() {
            return Ok(value);
        }
        let me = current();
        self.enter(me.to_arc());
        let result = loop {
            if let Some(value) = ready() {
                break Ok(value);
            }
            if me.is_interrupted() {
                break Err(Errno::RESTART);
            }
            if deadline.is_some_and(Deadline::has_passed) {
                break Err(Errno::ETIMEDOUT);
            }
            sched::park(deadline);
        };
        self.leave(&me);
        result
    }

    /// Lets every waiter look at its condition again.
    pub fn wake_all(&self) {
        self.waiters.lock().iter().for_each(sched::unpark);
    }

    /// Adds a thread that will park itself.
    pub(crate) fn enter(&self, thread: Arc<Thread>) {
        self.waiters.lock().push(thread);
    }

    /// Takes it out again.
    pub(crate) fn leave(&self, thread: &Thread) {
        let mut waiters = self.waiters.lock();
        let at = waiters
            .iter()
            .position(|t| core::ptr::eq(Arc::as_ptr(t), thread));
        let gone = at.map(|at| waiters.swap_remove(at));
        drop(waiters);
        drop(gone);
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}
