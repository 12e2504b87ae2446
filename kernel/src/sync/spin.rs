//! [`Mutex`]: a spin lock for thread context.
//!
//! Preemption is off while it is held, so nobody spins for a thread that does not run. CPUs that spin serve flushes, so its holder
//! may wait for one. They run no functions, and with interrupts off they take no interrupt either: so its holder, and what
//! interrupts it, must not call functions on other CPUs and wait for them.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::platform::SHOOTDOWN;
use crate::preempt;

/// What a CPU does while a lock is taken: serve flushes, then pause.
#[derive(Debug)]
struct ServeFlushes;

impl RelaxStrategy for ServeFlushes {
    #[inline]
    fn relax() {
        SHOOTDOWN.poll();
        core::hint::spin_loop();
    }
}

/// A lock that interrupt handlers never take.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    inner: SpinMutex<T, ServeFlushes>,
}

impl<T> Mutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            inner: SpinMutex::new(value),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Disables preemption on this CPU and takes the lock.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        preempt::disable();
        MutexGuard {
            inner: ManuallyDrop::new(self.inner.lock()),
        }
    }

    /// Takes the lock if it is free; else leaves preemption as it was.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        preempt::disable();
        match self.inner.try_lock() {
            Some(inner) => Some(MutexGuard {
                inner: ManuallyDrop::new(inner),
            }),
            None => {
                preempt::enable();
                None
            }
        }
    }
}

/// Guard of [`Mutex`]. Dropping it unlocks, then allows preemption, which may happen at once.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: ManuallyDrop<SpinMutexGuard<'a, T, ServeFlushes>>,
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped here once and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        preempt::enable();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
