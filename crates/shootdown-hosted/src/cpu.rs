//! [`Cpu`]: what a CPU is besides its translation cache.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering, fence};

use shootdown::IpiRefused;

use crate::futex::Bell;
use crate::signal::ThreadId;

/// The engine's interrupt.
pub(crate) const IPI: u32 = 1;
/// The timer's.
pub(crate) const TICK: u32 = 2;
/// That of a second engine on the same CPUs.
pub(crate) const SECOND: u32 = 8;
/// Somebody else should run here.
pub(crate) const RESCHEDULE: u32 = 4;

/// Whether the CPU is a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Service {
    Offline,
    Online,
    /// The machine is being taken down.
    Stopped,
}

/// One CPU.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Cpu {
    pending: AtomicU32,
    /// The thread that is this CPU now.
    holder: AtomicI32,
    is: AtomicU32,
    wanted: AtomicU32,
    /// For its idle thread.
    pub(crate) bell: Bell,
    /// The space that is loaded, plus one. The CPU's own, with interrupts off.
    loaded: AtomicU32,
}

impl Cpu {
    pub(crate) const fn new() -> Self {
        Self {
            pending: AtomicU32::new(0),
            holder: AtomicI32::new(0),
            is: AtomicU32::new(Service::Offline as u32),
            wanted: AtomicU32::new(Service::Online as u32),
            bell: Bell::new(),
            loaded: AtomicU32::new(0),
        }
    }

    /// Makes `interrupts` pending and interrupts the thread that is this CPU.
    pub(crate) fn interrupt(&self, interrupts: u32) -> Result<(), IpiRefused> {
        // ORDERING: Release publishes what the sender did (contract 5); pairs with `take`.
        self.pending.fetch_or(interrupts, Ordering::Release);
        // ORDERING: store pending / load holder, against store holder / load pending in `hand_to` and `has_pending`: the
        // new holder sees the interrupt, or we see the new holder.
        fence(Ordering::SeqCst);
        let holder = ThreadId(self.holder.load(Ordering::Relaxed));
        match holder.interrupt() {
            true => Ok(()),
            false => Err(IpiRefused),
        }
    }

    /// The same from the CPU itself, with interrupts off: it looks when it enables them.
    pub(crate) fn interrupt_self(&self, interrupts: u32) {
        self.pending.fetch_or(interrupts, Ordering::Relaxed);
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn take(&self) -> u32 {
        // ORDERING: Acquire; pairs with `interrupt`.
        self.pending.swap(0, Ordering::Acquire)
    }

    /// The CPU is `thread`'s from now on.
    pub(crate) fn hand_to(&self, thread: ThreadId) {
        self.holder.store(thread.0, Ordering::Relaxed);
        // ORDERING: see `interrupt`; the new holder looks at `pending` after it has been woken.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn is(&self, service: Service) -> bool {
        // ORDERING: Acquire sees what the CPU did before; pairs with `set`.
        self.is.load(Ordering::Acquire) == service as u32
    }

    pub(crate) fn set(&self, service: Service) {
        // ORDERING: Release; pairs with `is`.
        self.is.store(service as u32, Ordering::Release);
    }

    pub(crate) fn wants(&self, service: Service) -> bool {
        self.wanted.load(Ordering::Relaxed) == service as u32
    }

    /// Asks the idle thread for another state.
    pub(crate) fn want(&self, service: Service) {
        self.wanted.store(service as u32, Ordering::Relaxed);
        self.bell.ring();
    }

    pub(crate) fn loaded(&self) -> Option<usize> {
        (self.loaded.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    pub(crate) fn set_loaded(&self, space: Option<usize>) {
        let word = space.map_or(0, |space| space as u32 + 1);
        self.loaded.store(word, Ordering::Relaxed);
    }
}
