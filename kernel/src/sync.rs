//! Locks of the kernel. Every one serves this CPU's shootdown inbox while it spins.
//!
//! Whoever holds a lock may be waiting for a shootdown that this CPU has to acknowledge; with
//! interrupts off only polling gets it through (ARCHITECTURE.md, "Waiting serves the inbox").
//!
//! Lock order: address space, then shared memory, then frame allocator. Run queues and other task locks are leaves.
//! No lock is held over access to user memory, and none but an address space's over a ticket's `wait`.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::arch::irq::{self, IrqState};
use crate::platform::SHOOTDOWN;

/// What a CPU does while a lock is taken: serve shootdowns, then pause.
#[derive(Debug)]
pub struct ServeInbox;

impl RelaxStrategy for ServeInbox {
    #[inline]
    fn relax() {
        SHOOTDOWN.poll();
        core::hint::spin_loop();
    }
}

/// A lock that interrupt handlers never take.
pub type Mutex<T> = SpinMutex<T, ServeInbox>;
/// Guard of [`Mutex`].
pub type MutexGuard<'a, T> = SpinMutexGuard<'a, T, ServeInbox>;

/// A lock that interrupt handlers may take too: interrupts are off while it is held.
#[derive(Debug)]
pub struct IrqMutex<T: ?Sized> {
    inner: Mutex<T>,
}

impl<T> IrqMutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            inner: Mutex::new(value),
        }
    }
}

impl<T: ?Sized> IrqMutex<T> {
    /// Disables interrupts on this CPU and takes the lock.
    pub fn lock(&self) -> IrqMutexGuard<'_, T> {
        let irq = irq::save();
        IrqMutexGuard {
            inner: ManuallyDrop::new(self.inner.lock()),
            irq,
        }
    }

    /// Takes the lock if it is free; else leaves interrupts as they were.
    pub fn try_lock(&self) -> Option<IrqMutexGuard<'_, T>> {
        let irq = irq::save();
        match self.inner.try_lock() {
            Some(inner) => Some(IrqMutexGuard {
                inner: ManuallyDrop::new(inner),
                irq,
            }),
            None => {
                irq::restore(irq);
                None
            }
        }
    }
}

/// Guard of [`IrqMutex`]. Dropping it unlocks, then restores the interrupt state.
#[derive(Debug)]
pub struct IrqMutexGuard<'a, T: ?Sized> {
    inner: ManuallyDrop<MutexGuard<'a, T>>,
    irq: IrqState,
}

impl<T: ?Sized> Drop for IrqMutexGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: dropped here once and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        irq::restore(self.irq);
    }
}

impl<T: ?Sized> Deref for IrqMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for IrqMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
