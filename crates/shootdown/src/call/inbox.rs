//! Inboxes: which initiators a CPU has to look at.
//!
//! I7: a set bit has an interrupt on its way, or a responder that will look again.
//!
//! With at most 64 CPUs the one word is its own doorbell: whoever turns it from zero sends the interrupt.
//! With more, a separate `kicked` flag is: it is set after the bit and cleared before the words are
//! emptied. Both sides use read-modify-writes on the doorbell, so their order alone decides: an initiator
//! that finds it set precedes the responder's clearing, which therefore acquires the bit; one that
//! comes later finds it clear and sends.

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::mask::CpuMask;
use crate::sync::{AtomicBool, Ordering, const_fn};

/// The requests that wait for one CPU, one bit an initiator.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Inbox<const N: usize>
where
    Cpus<N>: Capacity,
{
    initiators: AtomicCpuMask<N>,
    /// The doorbell when `initiators` has several words; unused otherwise.
    kicked: AtomicBool,
}

impl<const N: usize> Inbox<N>
where
    Cpus<N>: Capacity,
{
    const ONE_WORD: bool = <Cpus<N> as Capacity>::WORDS == 1;

    const_fn! {
        pub(crate) fn new() -> Self {
            Self { initiators: AtomicCpuMask::new(), kicked: AtomicBool::new(false) }
        }
    }

    /// Announces a published slot of `initiator`; tells whether the caller must send the interrupt.
    ///
    /// The caller has interrupts off until it has sent it: an interrupt handler here that found the
    /// doorbell rung would wait for an interrupt that nobody sends.
    #[must_use]
    pub(crate) fn add(&self, initiator: CpuId) -> bool {
        // ORDERING: Release publishes the slot; pairs with the Acquire in `take`.
        let before = self.initiators.insert(initiator, Ordering::Release);
        if Self::ONE_WORD {
            before == 0
        } else {
            // ORDERING: Release publishes the bit to the responder that clears the flag; see the module text.
            !self.kicked.swap(true, Ordering::AcqRel)
        }
    }

    /// Whether a look is worthwhile now; a hint.
    pub(crate) fn is_quiet(&self) -> bool {
        if Self::ONE_WORD {
            self.initiators.is_empty(Ordering::Relaxed)
        } else {
            !self.kicked.load(Ordering::Relaxed)
        }
    }

    /// Empties the inbox; `None` when it was quiet. Only its own CPU calls this, with interrupts off.
    pub(crate) fn take(&self) -> Option<CpuMask<N>> {
        if self.is_quiet() {
            return None;
        }
        if !Self::ONE_WORD {
            // ORDERING: Acquire sees the bits of every initiator that found the flag set; pairs with `add`.
            self.kicked.swap(false, Ordering::AcqRel);
        }
        // ORDERING: Acquire sees the slots behind the bits; pairs with `add`.
        Some(self.initiators.take(Ordering::Acquire))
    }

    /// Puts initiators back that could not be served now. The caller is the inbox's own CPU and sees to it
    /// that somebody looks again.
    pub(crate) fn put_back(&self, initiators: &CpuMask<N>) {
        self.initiators.unite(initiators, Ordering::Relaxed);
        if !Self::ONE_WORD {
            self.kicked.store(true, Ordering::Relaxed);
        }
    }
}
