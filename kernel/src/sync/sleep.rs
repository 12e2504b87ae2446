//! [`SleepMutex`]: a lock whose holder may wait, and be preempted, and whose waiters sleep.
//!
//! Under it one waits for other CPUs: a fork, a copy on write. With a spin lock that wait would keep preemption off
//! on this CPU, and on every CPU that wants the lock.
//!
//! Free, it is taken by whoever comes first, also past those who sleep for it (barging): handing it over would put
//! a thread switch between any two owners. The most urgent sleeper is woken when it becomes free. No wake-up is lost: a sleeper enters the list before it marks the lock as contended, and whoever frees a
//! contended lock wakes one sleeper, which marks it again before it sleeps again. So while somebody is in the list the
//! lock is marked, or somebody is awake who will mark it.
//!
//! Waiting for it cannot be interrupted: a thread that is killed meanwhile gets the lock first.
//!
//! There is no priority inheritance: an owner that others keep from its CPU keeps its waiters waiting, however urgent
//! they are. Real-time programs are to map and touch their memory beforehand, as on Linux without `PREEMPT_RT`,
//! whose `mmap_lock` does not inherit either.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, Ordering};

use alloc::sync::Arc;
use spin::Once;

use super::{Link, List, Listed, Mutex};
use crate::arch::percpu;

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and somebody may have to be woken.
const CONTENDED: u8 = 2;

/// Looks at a lock before sleeping for it: most are held for less time than two thread switches take.
const LOOKS: usize = 64;

/// A thread, as the lock sees it that it waits for.
pub trait Sleeper: fmt::Debug + Send + Sync {
    /// Its link in the list of those that wait for the lock.
    fn link(&self) -> &Link<dyn Sleeper>;
    /// How urgent it is: more is more.
    fn urgency(&self) -> u32;
    /// Sleeps until [`wake`](Self::wake), or for no reason. For the thread itself, which may sleep.
    fn sleep(&self);
    /// Wakes it, or makes its next sleep end at once. Any context.
    fn wake(self: Arc<Self>);
}

impl Listed for dyn Sleeper {
    fn link(&self) -> &Link<Self> {
        Sleeper::link(self)
    }

    fn urgency(&self) -> u32 {
        Sleeper::urgency(self)
    }
}

/// The running thread: the scheduler says which it is.
pub static RUNNING: Once<fn() -> Arc<dyn Sleeper>> = Once::new();

/// A lock for thread context that may be held for long.
pub struct SleepMutex<T> {
    state: AtomicU8,
    waiters: Mutex<List<dyn Sleeper>>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one guard at a time, and whoever takes the lock may be on another CPU.
unsafe impl<T: Send> Sync for SleepMutex<T> {}

impl<T> SleepMutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU8::new(FREE),
            waiters: Mutex::new(List::new()),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock; sleeps until it can.
    ///
    /// Context: a thread that may sleep. An idle thread, too, while nobody else can have the lock.
    ///
    /// # Panics
    /// With preemption off: a spin lock is held.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> SleepMutexGuard<'_, T> {
        assert!(
            percpu::preempt_count() == 0,
            "a lock that may sleep is taken with preemption off"
        );
        if !self.try_take(HELD) {
            self.wait();
        }
        SleepMutexGuard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Takes the lock if it is free. Context: as [`lock`](Self::lock), but never sleeps.
    pub fn try_lock(&self) -> Option<SleepMutexGuard<'_, T>> {
        self.try_take(HELD).then(|| SleepMutexGuard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// Makes it `taken`, if it is free.
    fn try_take(&self, taken: u8) -> bool {
        // ORDERING: sees what the last owner did; pairs with the release in `free`.
        self.state
            .compare_exchange(FREE, taken, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes it as [`try_take`](Self::try_take), if it becomes free soon.
    fn look_for_long(&self, taken: u8) -> bool {
        (0..LOOKS).any(|_| {
            core::hint::spin_loop();
            self.state.load(Ordering::Relaxed) == FREE && self.try_take(taken)
        })
    }

    #[cold]
    fn wait(&self) {
        if self.look_for_long(HELD) {
            return;
        }
        let running = RUNNING.get().expect("only threads wait for each other");
        let me = running();
        let mut has_slept = false;
        loop {
            self.waiters.lock().enter(&me);
            // ORDERING: publishes the entry in the list to whoever frees the lock; takes over from the last owner
            // as `try_take` does. Pairs with `free`.
            if self.state.swap(CONTENDED, Ordering::AcqRel) == FREE {
                break;
            }
            me.sleep();
            has_slept = true;
            // Whoever has freed it takes it again, perhaps, and would have to wake this thread each time that it frees it. Others that sleep are woken by this thread.
            if self.look_for_long(CONTENDED) {
                break;
            }
        }
        drop(self.waiters.lock().remove(&*me));
        if has_slept {
            // One of the wake-ups may have been for what the thread waits for outside.
            me.wake();
        }
    }

    fn free(&self) {
        // ORDERING: publishes what the owner did, and finds whoever marked the lock; pairs with `try_take` and
        // `wait`.
        if self.state.swap(FREE, Ordering::AcqRel) == CONTENDED {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let next = self.waiters.lock().take_most_urgent();
        if let Some(thread) = next {
            thread.wake();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SleepMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepMutex")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Guard of [`SleepMutex`]. Dropping it unlocks.
pub struct SleepMutexGuard<'a, T> {
    lock: &'a SleepMutex<T>,
    not_send: PhantomData<*mut ()>,
}

impl<T> Drop for SleepMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.free();
    }
}

impl<T> Deref for SleepMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock, so nobody changes the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SleepMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has the lock, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for SleepMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
