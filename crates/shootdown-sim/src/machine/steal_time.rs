//! [`StealTime`]: what a hypervisor and its guest tell each other about a virtual CPU, by KVM's protocol
//! (Linux, `Documentation/virt/kvm/x86/msr.rst`, "MSR_KVM_STEAL_TIME").

use std::sync::atomic::AtomicU64 as Word;

use shootdown::sim::{AtomicU64, Operation, Ordering};

/// The virtual CPU does not run.
const PREEMPTED: u64 = 1 << 0;
/// It is flushed before it runs again.
const FLUSH: u64 = 1 << 1;

/// The steal-time record of a virtual CPU, on a line of its own. Only the byte `preempted` is there.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct StealTime(AtomicU64);

impl StealTime {
    /// Of a virtual CPU that runs.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Of one that does not.
    pub(crate) const fn preempted() -> Self {
        Self(AtomicU64::new(PREEMPTED))
    }

    /// If the virtual CPU does not run, has its translations dropped before it runs again; true if they will be. Its accesses are events.
    pub(crate) fn flush_before_entry(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & PREEMPTED != 0 {
            let asked = seen | FLUSH;
            // ORDERING: Release: the hypervisor flushes after the change; Acquire: what the virtual CPU did is over.
            let exchanged =
                (self.0).compare_exchange(seen, asked, Ordering::AcqRel, Ordering::Relaxed);
            match exchanged {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The hypervisor writes that the virtual CPU does not run, in its own way: by `access` to the word.
    pub(crate) fn mark(&self, access: impl FnOnce(&Word, Operation)) {
        access(self.0.as_core(), Operation::Store(PREEMPTED));
    }

    /// The hypervisor's exchange before the virtual CPU runs; true if it is to be flushed.
    pub(crate) fn take(&self, access: impl FnOnce(&Word, Operation) -> u64) -> bool {
        access(self.0.as_core(), Operation::Swap(0)) & FLUSH != 0
    }

    /// Where the record is.
    pub(crate) fn address(&self) -> usize {
        self.0.as_core().as_ptr().addr()
    }
}
