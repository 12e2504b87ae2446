//! [`PassedMutex`]: a [`SleepMutex`] whose value others may glance at while nobody holds it, without keeping each other out.
//!
//! Threads of a process fault all the time, and most faults only read what the lock of the address space protects: where the area is, and which
//! entry to fill, by an exchange that one of them wins. Taking the lock for that would have one wait for the other.
//!
//! A glance keeps preemption off and waits for nothing. So whoever takes the lock spins for the last of them: for a few hundred instructions of another CPU, for on
//! its own there is none. While the lock is held, or waited for the last glance by its owner, there are no new ones, and whoever wanted one takes the lock.
//!
//! `kernel/tests-host/tests/passed.rs` is its model.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::atomic::{AtomicU32, Ordering};
use super::{SleepMutex, SleepMutexGuard, hint};
use crate::preempt;

/// In the word of a lock that is held; the other bits count glances.
const CLOSED: u32 = 1 << 31;

/// A lock for thread context that may be held for long, and passed while it is not.
pub struct PassedMutex<T> {
    lock: SleepMutex<()>,
    glances: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one guard at a time, or by glances that share it, on whatever CPU.
unsafe impl<T: Send + Sync> Sync for PassedMutex<T> {}

impl<T> PassedMutex<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self {
            lock: SleepMutex::new(()),
            glances: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock; sleeps until it can, and ends when no glance is left.
    ///
    /// Context and panics: as [`SleepMutex::lock`].
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> PassedMutexGuard<'_, T> {
        let held = self.lock.lock();
        // ORDERING: glances that come later find it closed, for all of this is about one word; that those before are over, with what they did, is what the
        // acquire finds. Pairs with the release in `Glance`.
        let mut seen = self.glances.fetch_or(CLOSED, Ordering::Acquire) | CLOSED;
        while seen != CLOSED {
            hint::spin_loop();
            seen = self.glances.load(Ordering::Acquire);
        }
        PassedMutexGuard {
            lock: self,
            _held: held,
        }
    }

    /// A look at the value, unless somebody has the lock. Preemption is off until it is dropped: it must be soon, without taking a lock of this kind, and
    /// without an access to user memory.
    #[inline]
    pub fn glance(&self) -> Option<Glance<'_, T>> {
        preempt::disable();
        // ORDERING: sees what the last owner did; pairs with the release in `PassedMutexGuard`.
        let before = self.glances.fetch_add(1, Ordering::Acquire);
        let glance = Glance {
            lock: self,
            not_send: PhantomData,
        };
        // Dropped, it is as if it had never been: nothing was read.
        (before & CLOSED == 0).then_some(glance)
    }
}

impl<T: fmt::Debug> fmt::Debug for PassedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassedMutex")
            .field("lock", &self.lock)
            .field("glances", &self.glances)
            .finish_non_exhaustive()
    }
}

/// Guard of [`PassedMutex`]. Dropping it unlocks.
pub struct PassedMutexGuard<'a, T> {
    lock: &'a PassedMutex<T>,
    // Dropped after the lock is open for glances.
    _held: SleepMutexGuard<'a, ()>,
}

impl<T> Drop for PassedMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: publishes what the owner did; pairs with `glance`.
        self.lock.glances.fetch_and(!CLOSED, Ordering::Release);
    }
}

impl<T> Deref for PassedMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock, and no glance is left, so nobody changes the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for PassedMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has the lock, no glance is left, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for PassedMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A look at what a [`PassedMutex`] protects.
#[derive(Debug)]
pub struct Glance<'a, T> {
    lock: &'a PassedMutex<T>,
    not_send: PhantomData<*mut ()>,
}

impl<T> Deref for Glance<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: it was begun while nobody had the lock, and whoever takes it waits until this is dropped.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for Glance<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: publishes what was done with what was seen; pairs with the acquire in `lock`.
        self.lock.glances.fetch_sub(1, Ordering::Release);
        preempt::enable();
    }
}
