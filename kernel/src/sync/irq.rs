//! [`IrqMutex`]: a spin lock for any context.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::spin::{Mutex, MutexGuard};
use crate::irq::{self, IrqState};

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
    #[track_caller]
    pub fn lock(&self) -> IrqMutexGuard<'_, T> {
        let irq = irq::save();
        IrqMutexGuard {
            inner: ManuallyDrop::new(self.inner.lock()),
            irq,
        }
    }

    /// Takes the lock if it is free; else leaves interrupts as they were.
    #[track_caller]
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
