//! [`Lock`]: a spin lock of the virtual kernel.

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{Capacity, Platform, Shootdown};

use crate::machine::{PLATFORM, SimPlatform, context};
use crate::walkthrough::Sort;

/// A spin lock whose waiters serve the engine, as the engine asks of hosts.
#[derive(Debug)]
pub struct Lock(AtomicU64);

/// The lock is taken until this is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a Lock);

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether somebody has taken it, for who looks without being seen.
    pub(super) fn is_taken(&self) -> bool {
        self.0.as_core().load(Ordering::Relaxed) != 0
    }

    /// Takes the lock. Interrupts in any state; preemption is off as long as it is held.
    pub fn take<C: Capacity>(&self, engine: &Shootdown<SimPlatform<C>>) -> Held<'_> {
        PLATFORM.preempt_disable();
        // ORDERING: Acquire sees what was done under the lock before; pairs with the Release in `drop`.
        while self.0.swap(1, Ordering::Acquire) != 0 {
            engine.poll();
            PLATFORM.relax();
        }
        context().hear(Sort::Lock, "takes a lock");
        Held(self)
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // ORDERING: Release publishes what was done under the lock; pairs with the Acquire in `take`.
        self.0.0.store(0, Ordering::Release);
        context().hear(Sort::Lock, "leaves the lock");
        // SAFETY: 1. disabled before.
        unsafe { PLATFORM.preempt_enable() };
    }
}
