//! [`StealTime`]: what a hypervisor and its guest tell each other about a virtual CPU.

use std::sync::atomic::Ordering;

use shootdown::sim::AtomicU64;
use shootdown_x86::pv::kvm::{FLUSH, PREEMPTED, Preempted, ask};

/// The steal-time record of a virtual CPU, on a line of its own. Only the byte `preempted` is there.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct StealTime(AtomicU64);

impl StealTime {
    /// If the virtual CPU does not run, has its translations dropped before it runs again; true if they will be. An access as any other.
    pub fn flush_before_entry(&self) -> bool {
        ask(self)
    }

    /// The hypervisor's exchange; true if translations are to be dropped.
    // Not inlined: optimised into its caller, the count of flushes next to it is lost (rustc 1.95).
    #[inline(never)]
    pub(crate) fn take(&self) -> bool {
        let byte = self.0.as_core().swap(0, Ordering::Relaxed);
        byte & u64::from(FLUSH) != 0
    }

    /// Of a virtual CPU that does not run.
    pub(crate) const fn preempted() -> Self {
        Self(AtomicU64::new(PREEMPTED as u64))
    }

    /// The hypervisor writes that it does not run.
    pub(crate) fn mark(&self) {
        let byte = u64::from(PREEMPTED);
        self.0.as_core().store(byte, Ordering::Relaxed);
    }

    /// Where the record is.
    pub(crate) fn address(&self) -> usize {
        self.0.as_core().as_ptr().addr()
    }
}

impl Preempted for StealTime {
    fn load(&self) -> u8 {
        self.0.load(Ordering::Relaxed) as u8
    }

    fn compare_exchange(&self, seen: u8, new: u8) -> Result<u8, u8> {
        let (seen, new) = (u64::from(seen), u64::from(new));
        let order = (Ordering::Release, Ordering::Relaxed);
        let found = self.0.compare_exchange(seen, new, order.0, order.1);
        found.map(|old| old as u8).map_err(|now| now as u8)
    }
}
