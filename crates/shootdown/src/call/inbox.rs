//! Inboxes: which initiators a CPU has to look at.
//!
//! I7: a set bit has an interrupt on its way, or a responder that will look again.
//!
//! One word is the *doorbell*: whoever turns it from zero sends the interrupt. With at most 64 CPUs it is the set of initiators
//! itself; with more it says which pairs of words of the set have bits. Both sides use read-modify-writes on it, so their order alone
//! decides: an initiator that finds it rung precedes the responder's emptying, which therefore acquires the bit; one that
//! comes later finds it silent and sends.
//!
//! A CPU that will look again anyway *attends*: it keeps its own doorbell rung by a mark that stands for nobody, and no
//! interrupt is sent to it until it [rests](Inbox::rest).

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::mask::{CpuMask, bit_of};
use crate::sync::{AtomicU64, Ordering, const_fn};

/// The requests that wait for one CPU, one bit an initiator.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Inbox<const N: usize>
where
    Cpus<N>: Capacity,
{
    /// The pairs of words of `initiators` that have bits, when there are several words; unused otherwise.
    rung: AtomicU64,
    /// Not zero when somebody has asked for a flush; a hint for a responder that runs functions.
    urgent: AtomicU64,
    initiators: AtomicCpuMask<N>,
}

/// What a CPU promises when it empties its inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Nothing: who comes next sends an interrupt.
    Leave,
    /// To look again, or to rest.
    Attend,
}

impl<const N: usize> Inbox<N>
where
    Cpus<N>: Capacity,
{
    const ONE_WORD: bool = <Cpus<N> as Capacity>::WORDS == 1;

    const_fn! {
        pub(crate) fn new() -> Self {
            Self { rung: AtomicU64::new(0), urgent: AtomicU64::new(0), initiators: AtomicCpuMask::new() }
        }
    }

    fn doorbell(&self) -> &AtomicU64 {
        match Self::ONE_WORD {
            true => self.initiators.group(0),
            false => &self.rung,
        }
    }

    /// What keeps the doorbell of `me` rung. No CPU is its own initiator; pairs of words need half of the bits.
    fn mark(me: CpuId) -> u64 {
        match Self::ONE_WORD {
            true => bit_of(me),
            false => 1 << 63,
        }
    }

    /// The doorbell's bit for a word, when there are several.
    const fn pair(group: usize) -> u64 {
        1 << (group / 2)
    }

    /// The lines that [`add`](Self::add) writes, which may be the same.
    pub(crate) fn lines_of(&self, initiator: CpuId) -> [usize; 2] {
        let doorbell = core::ptr::from_ref(self.doorbell()).addr();
        [doorbell, self.initiators.address_of(initiator)]
    }

    /// Announces a published slot of `initiator`; tells whether the caller must send the interrupt.
    ///
    /// The caller has interrupts off until it has sent it: an interrupt handler here that found the
    /// doorbell rung would wait for an interrupt that nobody sends.
    #[must_use]
    pub(crate) fn add(&self, initiator: CpuId, is_flush: bool) -> bool {
        if is_flush {
            self.urgent.store(1, Ordering::Relaxed);
        }
        // ORDERING: Release publishes the slot; pairs with the Acquire in `take`.
        let before = self.initiators.insert(initiator, Ordering::Release);
        if Self::ONE_WORD {
            before == 0
        } else {
            let pair = Self::pair(initiator.index() / 64);
            // ORDERING: Release publishes the bit to the responder that empties the doorbell; see the module text.
            self.rung.fetch_or(pair, Ordering::AcqRel) == 0
        }
    }

    /// Whether nobody is in it; a hint.
    pub(crate) fn is_quiet(&self, me: CpuId) -> bool {
        self.doorbell().load(Ordering::Relaxed) & !Self::mark(me) == 0
    }

    /// Whether a flush has come since [`take`](Self::take) was called; a hint.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed) != 0
    }

    /// Empties the inbox; `None` when it was quiet. Only its own CPU calls this, with interrupts off.
    pub(crate) fn take(&self, me: CpuId, next: Next) -> Option<CpuMask<N>> {
        if self.is_quiet(me) {
            return None;
        }
        if self.is_urgent() {
            self.urgent.store(0, Ordering::Relaxed);
        }
        let mark = match next {
            Next::Leave => 0,
            Next::Attend => Self::mark(me),
        };
        // ORDERING: Acquire sees the slots behind the bits, or the bits of every initiator that found the doorbell rung;
        // pairs with `add`.
        let rung = self.doorbell().swap(mark, Ordering::AcqRel);
        let mut found = CpuMask::EMPTY;
        if Self::ONE_WORD {
            found.words_mut()[0] = rung & !Self::mark(me);
            return Some(found);
        }
        for (group, word) in found.words_mut().iter_mut().enumerate() {
            let cell = self.initiators.group(group);
            if rung & Self::pair(group) != 0 && cell.load(Ordering::Relaxed) != 0 {
                // ORDERING: Acquire sees the slots behind the bits; pairs with `add`.
                *word = cell.swap(0, Ordering::Acquire);
            }
        }
        Some(found)
    }

    /// Promises to look again or to rest: no interrupt is sent meanwhile. As [`take`](Self::take).
    pub(crate) fn attend(&self, me: CpuId) {
        // ORDERING: a read-modify-write that stays in the chain which the next `take` acquires.
        self.doorbell().fetch_or(Self::mark(me), Ordering::AcqRel);
    }

    /// Whether the promise stands.
    pub(crate) fn attends(&self, me: CpuId) -> bool {
        self.doorbell().load(Ordering::Relaxed) & Self::mark(me) != 0
    }

    /// Where initiators write.
    pub(crate) fn doorbell_address(&self) -> *const u64 {
        core::ptr::from_ref(self.doorbell()).cast()
    }

    /// Takes the promise back, if nobody relies on it; tells whether that is so. If not, the inbox must be emptied. As
    /// [`take`](Self::take).
    #[must_use]
    pub(crate) fn rest(&self, me: CpuId) -> bool {
        // ORDERING: Acquire sees the bits of those that found only the mark; pairs with `add`.
        let rested = self.doorbell().compare_exchange(
            Self::mark(me),
            0,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        rested.map_or_else(|seen| seen == 0, |_| true)
    }

    /// Puts initiators back that could not be served now. The caller is the inbox's own CPU and sees to it
    /// that somebody looks again.
    pub(crate) fn put_back(&self, initiators: &CpuMask<N>) {
        self.initiators.unite(initiators, Ordering::Relaxed);
        if !Self::ONE_WORD {
            let words = initiators.words().iter().enumerate();
            let rung = words
                .filter(|(_, word)| **word != 0)
                .fold(0, |rung, (group, _)| rung | Self::pair(group));
            // ORDERING: a read-modify-write, so that an initiator that rang just before stays in the chain
            // that the next `take` acquires; a plain store would cut it off and its bit could be missed.
            self.rung.fetch_or(rung, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    extern crate std;

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use std::vec::Vec;

    use super::{Inbox, Next};
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
                        if inbox.add(CpuId::new(number), false) {
                            interrupts.fetch_add(1, Ordering::AcqRel);
                        }
                    })
                })
                .collect();
            let mut found = crate::CpuMask::<128>::EMPTY;
            if let Some(fresh) = inbox.take(CpuId::new(0), Next::Leave) {
                inbox.put_back(&fresh);
            }
            if let Some(fresh) = inbox.take(CpuId::new(0), Next::Leave) {
                found.unite(&fresh);
            }
            for initiator in initiators {
                initiator.join().unwrap();
            }
            // What the interrupt handler does, once for all interrupts since; the put-back needs no
            // interrupt because the responder looks again by itself.
            if interrupts.swap(0, Ordering::AcqRel) > 0
                && let Some(fresh) = inbox.take(CpuId::new(0), Next::Leave)
            {
                found.unite(&fresh);
            }
            assert_eq!(found.len(), 2, "an initiator was lost: {found:?}");
            assert!(inbox.is_quiet(CpuId::new(0)));
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
            let rung = inbox.add(CpuId::new(3), false);
            assert!(rung, "the first initiator must interrupt");
            let (told, seen) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
            let second = {
                let (inbox, told) = (inbox.clone(), told.clone());
                loom::thread::spawn(move || {
                    let interrupts = inbox.add(CpuId::new(70), false);
                    told.store(1 + u64::from(interrupts), Ordering::Relaxed);
                })
            };
            // The interrupt for initiator 3.
            let fresh = inbox
                .take(CpuId::new(0), Next::Leave)
                .expect("its bit is set");
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
