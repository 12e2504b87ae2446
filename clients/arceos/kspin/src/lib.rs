//! Spin locks whose waiters poll. Written for this client; it has what ArceOS uses of the crate `kspin`, which it replaces.
//!
//! Why: the holder of a lock may wait for a flush. A CPU that spins for the lock with interrupts off takes no interrupt, so it has to look
//! for the flush itself, or both wait for ever.

#![no_std]

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::transmute;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use kernel_guard::{BaseGuard, NoOp, NoPreempt, NoPreemptIrqSave};

/// A lock that is taken with preemption disabled.
pub type SpinNoPreempt<T> = BaseSpinLock<NoPreempt, T>;
/// Its guard.
pub type SpinNoPreemptGuard<'a, T> = BaseSpinLockGuard<'a, NoPreempt, T>;
/// A lock that is taken with preemption disabled and interrupts off.
pub type SpinNoIrq<T> = BaseSpinLock<NoPreemptIrqSave, T>;
/// Its guard.
pub type SpinNoIrqGuard<'a, T> = BaseSpinLockGuard<'a, NoPreemptIrqSave, T>;
/// A lock that leaves both as they are.
pub type SpinRaw<T> = BaseSpinLock<NoOp, T>;
/// Its guard.
pub type SpinRawGuard<'a, T> = BaseSpinLockGuard<'a, NoOp, T>;

/// What waiters call; null before `set_poll`.
static POLL: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// From now on waiters call `poll` in each turn. It takes no lock.
pub fn set_poll(poll: fn()) {
    // ORDERING: Release: what `poll` uses is set up; pairs with the load in `wait_a_turn`.
    POLL.store(poll as *mut (), Ordering::Release);
}

#[cold]
fn wait_a_turn() {
    // ORDERING: Acquire: see `set_poll`.
    let poll = POLL.load(Ordering::Acquire);
    if !poll.is_null() {
        // SAFETY: only `set_poll` stores there, and what it stores is a `fn()`.
        unsafe { transmute::<*mut (), fn()>(poll)() };
    }
    core::hint::spin_loop();
}

/// A spin lock; `G` says what is disabled while it is held.
pub struct BaseSpinLock<G: BaseGuard, T: ?Sized> {
    guard: PhantomData<G>,
    is_held: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: one thread at a time comes to the data, by the guard, so they need only be sent.
unsafe impl<G: BaseGuard, T: ?Sized + Send> Sync for BaseSpinLock<G, T> {}
// SAFETY: the lock owns the data.
unsafe impl<G: BaseGuard, T: ?Sized + Send> Send for BaseSpinLock<G, T> {}

impl<G: BaseGuard, T> BaseSpinLock<G, T> {
    /// A lock that is free.
    pub const fn new(data: T) -> Self {
        Self {
            guard: PhantomData,
            is_held: AtomicBool::new(false),
            data: UnsafeCell::new(data),
        }
    }

    /// What it protected.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<G: BaseGuard, T: ?Sized> BaseSpinLock<G, T> {
    /// Waits until the lock is free, and takes it.
    pub fn lock(&self) -> BaseSpinLockGuard<'_, G, T> {
        let state = G::acquire();
        while !self.take() {
            while self.is_locked() {
                wait_a_turn();
            }
        }
        BaseSpinLockGuard { lock: self, state }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<BaseSpinLockGuard<'_, G, T>> {
        let state = G::acquire();
        if self.take() {
            return Some(BaseSpinLockGuard { lock: self, state });
        }
        G::release(state);
        None
    }

    /// Whether somebody held it a moment ago.
    pub fn is_locked(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Frees the lock and leaves what its guard disabled.
    ///
    /// # Safety
    /// 1. The caller holds the lock, and has forgotten the guard.
    pub unsafe fn force_unlock(&self) {
        // ORDERING: Release: what was done under the lock; pairs with the exchange that takes it.
        self.is_held.store(false, Ordering::Release);
    }

    /// The data, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    fn take(&self) -> bool {
        // ORDERING: Acquire: what was done under the lock before; pairs with the Release at its end.
        let taken =
            self.is_held
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }
}

impl<G: BaseGuard, T: Default> Default for BaseSpinLock<G, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<G: BaseGuard, T: ?Sized + fmt::Debug> fmt::Debug for BaseSpinLock<G, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(data) => f.debug_tuple("SpinLock").field(&&*data).finish(),
            None => f.write_str("SpinLock(held)"),
        }
    }
}

/// A lock that is held, until this is dropped.
pub struct BaseSpinLockGuard<'a, G: BaseGuard, T: ?Sized> {
    lock: &'a BaseSpinLock<G, T>,
    state: G::State,
}

// SAFETY: a reference to it is one to the data.
unsafe impl<G: BaseGuard, T: ?Sized + Sync> Sync for BaseSpinLockGuard<'_, G, T> {}

impl<G: BaseGuard, T: ?Sized> Deref for BaseSpinLockGuard<'_, G, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so only this guard gives references.
        unsafe { &*self.lock.data.get() }
    }
}

impl<G: BaseGuard, T: ?Sized> DerefMut for BaseSpinLockGuard<'_, G, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, so only this guard gives references, and it is borrowed.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<G: BaseGuard, T: ?Sized + fmt::Debug> fmt::Debug for BaseSpinLockGuard<'_, G, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<G: BaseGuard, T: ?Sized> Drop for BaseSpinLockGuard<'_, G, T> {
    fn drop(&mut self) {
        // ORDERING: as in `force_unlock`.
        self.lock.is_held.store(false, Ordering::Release);
        G::release(self.state);
    }
}
