//! Barriers that a thread has all others of its address space issue, so that these need none: what `membarrier` offers.

use core::sync::atomic::{AtomicU8, Ordering};

use super::MemorySpace;
use crate::platform::SHOOTDOWN;

/// A kind of barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// Of memory accesses.
    Memory,
    /// Of these, and of instructions: what was changed is fetched anew.
    Core,
}

/// Those that a space has been registered for.
#[derive(Debug)]
pub struct Barriers(AtomicU8);

impl Barriers {
    pub(super) const fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    /// A child may ask for what its parent may.
    pub(super) fn inherit(&self, parent: &Self) {
        self.0
            .store(parent.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl MemorySpace {
    /// Its threads may ask for this one from now on.
    pub fn register(&self, barrier: Barrier) {
        self.barriers
            .0
            .fetch_or(1 << barrier as u8, Ordering::Relaxed);
    }

    /// Has every CPU that runs a thread of this space issue one, this one too. False if the space is not registered for it. May wait, and holds nothing.
    #[must_use]
    pub fn barrier(&self, barrier: Barrier) -> bool {
        if self.barriers.0.load(Ordering::Relaxed) & 1 << barrier as u8 == 0 {
            return false;
        }
        #[cfg(feature = "breaks")]
        if super::invalidate::breaks::issues_barriers_here() {
            core::sync::atomic::fence(Ordering::SeqCst);
            return true;
        }
        let control = SHOOTDOWN.control();
        match barrier {
            Barrier::Memory => control.barrier(self.engine()).wait(),
            // A thread that comes to a CPU later has loaded a root there, which is serialising (SDM vol. 3A, "Serializing Instructions"); lazy CPUs are asked.
            Barrier::Core => {
                // The caller's stores / the set of CPUs, against a CPU's bit / what it fetches.
                core::sync::atomic::fence(Ordering::SeqCst);
                control.serialise(&self.engine().cpus()).wait();
            }
        }
        true
    }
}
