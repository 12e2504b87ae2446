//! Models of the lock that faults pass: every interleaving, and every value that the C11 model allows, of an owner or two and those who glance.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use loom::{hint, sync::atomic};
use passed::PassedMutex;

// The kernel's file, on what stands below.
#[allow(dead_code)]
#[path = "../../src/sync/passed.rs"]
mod passed;

type SleepMutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

#[derive(Debug)]
struct SleepMutex<T>(loom::sync::Mutex<T>);

impl<T> SleepMutex<T> {
    fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    fn lock(&self) -> SleepMutexGuard<'_, T> {
        self.0.lock().expect("no owner panics")
    }
}

mod preempt {
    pub fn disable() {}
    pub fn enable() {}
}

/// What the lock protects. Loom reports accesses that may overlap.
struct Value(UnsafeCell<u32>);

// SAFETY: loom looks at every access.
unsafe impl Sync for Value {}
// SAFETY: as above.
unsafe impl Send for Value {}

type Lock = Arc<PassedMutex<Value>>;

fn own(lock: &Lock) {
    let guard = lock.lock();
    // SAFETY: loom reports an access that another may overlap.
    guard.0.with_mut(|value| unsafe { *value += 1 });
}

fn glance(lock: &Lock) -> Option<u32> {
    let glance = lock.glance()?;
    // SAFETY: as above.
    Some(glance.0.with(|value| unsafe { *value }))
}

/// Each of them on a thread of its own.
fn beside(others: &'static [fn(&Lock)], here: impl Fn(&Lock) + Send + Sync + 'static) {
    loom::model(move || {
        let lock = Arc::new(PassedMutex::new(Value(UnsafeCell::new(0))));
        let spawn = |work: &fn(&Lock)| {
            let (work, lock) = (*work, lock.clone());
            thread::spawn(move || work(&lock))
        };
        let threads: Vec<_> = others.iter().map(spawn).collect();
        here(&lock);
        for thread in threads {
            thread.join().expect("it does not panic");
        }
        assert!(glance(&lock).is_some(), "free again");
    });
}

fn looks(lock: &Lock) {
    glance(lock);
}

#[test]
fn an_owner_waits_for_glances_and_they_see_what_it_did() {
    beside(&[own], |lock| {
        let first = glance(lock);
        assert!(glance(lock).is_none_or(|second| Some(second) >= first));
    });
}

#[test]
fn an_owner_waits_for_the_last_of_several_glances() {
    beside(&[looks, looks], own);
}

#[test]
fn a_glance_is_apart_from_two_owners() {
    beside(&[own, looks], own);
}
