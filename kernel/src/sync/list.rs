//! A list of threads that needs no memory: each thread has the link to the next.
//!
//! A thread is in one list of each kind at most. Lists are short, so everything is found by walking.

use alloc::sync::Arc;

use super::Mutex;

/// A thread's link to the next in the list, under the lock of that list.
pub type Link<T> = Mutex<Option<Arc<T>>>;

/// A thread, as a list sees it.
pub trait Listed {
    /// Its link.
    fn link(&self) -> &Link<Self>;
    /// How urgent it is: more is more.
    fn urgency(&self) -> u32;
}

/// Threads that wait for one thing, in the order of their coming.
#[derive(Debug)]
pub struct List<T: ?Sized> {
    first: Option<Arc<T>>,
}

impl<T: Listed + ?Sized> List<T> {
    /// Nobody.
    pub const fn new() -> Self {
        Self { first: None }
    }

    /// Adds a thread at the end unless it is in the list.
    pub fn enter(&mut self, thread: &Arc<T>) {
        let mut last = match &self.first {
            None => {
                self.first = Some(thread.clone());
                return;
            }
            Some(first) => first.clone(),
        };
        while !Arc::ptr_eq(&last, thread) {
            let next = last.link().lock().clone();
            match next {
                Some(next) => last = next,
                None => {
                    *last.link().lock() = Some(thread.clone());
                    return;
                }
            }
        }
    }

    /// Takes this thread out; the list's reference to it, if it was in.
    pub fn remove(&mut self, thread: &T) -> Option<Arc<T>> {
        let mut before: Option<Arc<T>> = None;
        let mut at = self.first.clone();
        while let Some(found) = at {
            if core::ptr::addr_eq(Arc::as_ptr(&found), thread) {
                let rest = found.link().lock().take();
                return match before {
                    Some(before) => core::mem::replace(&mut *before.link().lock(), rest),
                    None => core::mem::replace(&mut self.first, rest),
                };
            }
            at = found.link().lock().clone();
            before = Some(found);
        }
        None
    }

    /// Takes the most urgent thread, of equally urgent ones the one that came first.
    pub fn take_most_urgent(&mut self) -> Option<Arc<T>> {
        let mut best = self.first.clone()?;
        let mut at = best.link().lock().clone();
        while let Some(thread) = at {
            at = thread.link().lock().clone();
            if thread.urgency() > best.urgency() {
                best = thread;
            }
        }
        self.remove(&best)
    }
}

impl<T: Listed + ?Sized> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}
