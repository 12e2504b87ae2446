//! A list of threads that needs no memory: each thread has the link to the next.
//!
//! A thread is in one list at most. Lists are short, so everything is found by walking.

use alloc::sync::Arc;

use super::Thread;
use super::queue::Ready;

/// Threads that wait for one thing, in the order of their coming.
#[derive(Debug, Default)]
pub struct ThreadList {
    first: Option<Arc<Thread>>,
}

impl ThreadList {
    /// Nobody.
    pub const fn new() -> Self {
        Self { first: None }
    }

    /// Adds a thread at the end unless it is in the list.
    pub fn enter(&mut self, thread: &Arc<Thread>) {
        let mut last = match &self.first {
            None => {
                self.first = Some(thread.clone());
                return;
            }
            Some(first) => first.clone(),
        };
        while !Arc::ptr_eq(&last, thread) {
            let next = last.next_waiter.lock().clone();
            match next {
                Some(next) => last = next,
                None => {
                    *last.next_waiter.lock() = Some(thread.clone());
                    return;
                }
            }
        }
    }

    /// Takes this thread out; the list's reference to it, if it was in.
    pub fn remove(&mut self, thread: &Thread) -> Option<Arc<Thread>> {
        let mut before: Option<Arc<Thread>> = None;
        let mut at = self.first.clone();
        while let Some(found) = at {
            if core::ptr::eq(Arc::as_ptr(&found), thread) {
                let rest = found.next_waiter.lock().take();
                return match before {
                    Some(before) => core::mem::replace(&mut *before.next_waiter.lock(), rest),
                    None => core::mem::replace(&mut self.first, rest),
                };
            }
            at = found.next_waiter.lock().clone();
            before = Some(found);
        }
        None
    }

    /// Takes the most urgent thread, of equally urgent ones the one that came first.
    pub fn take_most_urgent(&mut self) -> Option<Arc<Thread>> {
        let mut best = self.first.clone()?;
        let mut at = best.next_waiter.lock().clone();
        while let Some(thread) = at {
            at = thread.next_waiter.lock().clone();
            if thread.priority() > best.priority() {
                best = thread;
            }
        }
        self.remove(&best)
    }
}
