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
            // ORDERING: a read-modify-write, so that an initiator that rang just before stays in the chain
            // that the next `take` acquires; a plain store would cut it off and its bit could be missed.
            self.kicked.swap(true, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    extern crate std;

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use std::vec::Vec;

    use super::Inbox;
    use crate::cpu::CpuId;

    /// Two initiators in different words, one responder that looks when it is interrupted and now and then on its
    /// own, putting back what it found the first time: every initiator is found after it announced itself, or
    /// an interrupt that was sent for it is still to be taken (I7).
    #[test]
    fn a_wide_inbox_loses_no_initiator() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let inbox = Arc::new(Inbox::<128>::new());
            let interrupts = Arc::new(AtomicU64::new(0));
            let initiators: Vec<_> = [3, 70]
                .into_iter()
                .map(|number| {
                    let (inbox, interrupts) = (inbox.clone(), interrupts.clone());
                    loom::thread::spawn(move || {
                        if inbox.add(CpuId::new(number)) {
                            interrupts.fetch_add(1, Ordering::AcqRel);
                        }
                    })
                })
                .collect();
            let mut found = crate::CpuMask::<128>::EMPTY;
            if let Some(fresh) = inbox.take() {
                inbox.put_back(&fresh);
            }
            if let Some(fresh) = inbox.take() {
                found.unite(&fresh);
            }
            for initiator in initiators {
                initiator.join().unwrap();
            }
            // What the interrupt handler does, once for all interrupts since; the put-back needs no
            // interrupt because the responder looks again by itself.
            if interrupts.swap(0, Ordering::AcqRel) > 0
                && let Some(fresh) = inbox.take()
            {
                found.unite(&fresh);
            }
            assert_eq!(found.len(), 2, "an initiator was lost: {found:?}");
            assert!(inbox.is_quiet());
        });
    }

    /// The same without interrupts between: whoever is told not to send may rely on the responder that is
    /// about to look.
    #[test]
    fn an_initiator_that_need_not_interrupt_is_seen_by_the_next_look() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let inbox = Arc::new(Inbox::<128>::new());
            let rung = inbox.add(CpuId::new(3));
            assert!(rung, "the first initiator must interrupt");
            let (told, seen) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
            let second = {
                let (inbox, told) = (inbox.clone(), told.clone());
                loom::thread::spawn(move || {
                    let interrupts = inbox.add(CpuId::new(70));
                    told.store(1 + u64::from(interrupts), Ordering::Relaxed);
                })
            };
            // The interrupt for initiator 3.
            let fresh = inbox.take().expect("its bit is set");
            assert!(fresh.contains(CpuId::new(3)));
            seen.store(u64::from(fresh.contains(CpuId::new(70))), Ordering::Relaxed);
            second.join().unwrap();
            let need_not = told.load(Ordering::Relaxed) == 1;
            assert!(
                !need_not || seen.load(Ordering::Relaxed) == 1,
                "nobody will look for initiator 70"
            );
        });
    }
}
