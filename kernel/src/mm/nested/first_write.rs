//! What follows the first write to a clean page: nothing, because a right gained needs no flush. Other hypervisors flush there; this kernel does so
//! where a measurement compares itself with them (`/proc/shootdown/first_writes`).

use super::machine::Nested;
use crate::mm::frames::FrameChain;
use crate::mm::invalidate::GuestPending;
use crate::sync::SleepMutex;
use core::sync::atomic::{AtomicU8, Ordering};

/// What follows such a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstWrites {
    /// Nothing.
    Unflushed,
    /// A flush of the machine, which the virtual CPU that wrote waits for.
    Flushed,
    /// The same, one at a time in the whole kernel.
    FlushedOneByOne,
}

static CHOSEN: AtomicU8 = AtomicU8::new(FirstWrites::Unflushed as u8);
static ONE_BY_ONE: SleepMutex<()> = SleepMutex::new(());

impl FirstWrites {
    const ALL: [Self; 3] = [Self::Unflushed, Self::Flushed, Self::FlushedOneByOne];

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unflushed => "unflushed",
            Self::Flushed => "flushed",
            Self::FlushedOneByOne => "flushed-one-by-one",
        }
    }

    /// What follows now.
    pub fn chosen() -> Self {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        let known = Self::ALL.into_iter().find(|known| *known as u8 == chosen);
        known.unwrap_or(Self::Unflushed)
    }

    /// What follows from now on.
    pub fn choose(self) {
        CHOSEN.store(self as u8, Ordering::Relaxed);
    }
}

impl Nested {
    /// A page has become writable for the guest. Interrupts and preemption are on; no lock is held.
    pub(super) fn first_write(&self) {
        let turn = match FirstWrites::chosen() {
            FirstWrites::Unflushed => return,
            FirstWrites::Flushed => None,
            FirstWrites::FlushedOneByOne => Some(ONE_BY_ONE.lock()),
        };
        GuestPending::submit(&self.engine, &self.in_flight, FrameChain::new()).finish();
        drop(turn);
    }
}
