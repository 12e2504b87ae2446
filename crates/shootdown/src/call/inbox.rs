//! Inboxes: which initiators a CPU has to look at.
//!
//! I7: a set bit has an interrupt on its way, or a responder that will look again.
//!
//! One word is the *doorbell*: the initiator that turns it from zero sends the interrupt. With one group it is the set of initiators
//! itself; with more it says which words of the set have bits, and the initiator that turns such a word from zero rings: so when all
//! call at once, most of them write one word, and rely on the first, which has interrupts off until it has rung and sent. Both sides
//! use read-modify-writes on each word, so their order alone decides: an initiator that finds bits precedes the responder's emptying,
//! which therefore acquires its own; one that comes later finds none, and rings or sends. A flush rings always, for the hint's sake.
//!
//! A CPU that will look again anyway *holds* its doorbell: a mark that stands for no CPU keeps it rung, and no
//! interrupt is sent to it until it [lets it go](Inbox::let_go).

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::sync::{AtomicU64, Ordering, const_fn};

/// The requests that wait for one CPU, one bit an initiator.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Inbox<C: Capacity> {
    /// The words of `initiators` that have bits, when there are several words; unused otherwise.
    rung: AtomicU64,
    /// Not zero when an initiator has asked for a flush; a hint for a responder that runs functions. Unused when there are several words: then the
    /// doorbell says it.
    urgent: AtomicU64,
    initiators: AtomicCpuMask<C>,
}

impl<C: Capacity> Inbox<C> {
    const IS_WIDE: bool = C::IS_WIDE;

    const_fn! {
        pub(crate) fn new() -> Self {
            Self { rung: AtomicU64::new(0), urgent: AtomicU64::new(0), initiators: AtomicCpuMask::new() }
        }
    }

    fn doorbell(&self) -> &AtomicU64 {
        match Self::IS_WIDE {
            true => &self.rung,
            false => self.initiators.group(0),
        }
    }

    /// What holds the doorbell of `me`. No CPU is its own initiator; words need 62 of the bits.
    fn mark(me: CpuId) -> u64 {
        match Self::IS_WIDE {
            true => 1 << 63,
            false => C::bit(me),
        }
    }

    /// The doorbell's bit for flushes, when there are several words.
    const URGENT: u64 = if Self::IS_WIDE { 1 << 62 } else { 0 };

    /// The last bit of the doorbell that stands for a word; with 64 words, for the last three.
    const LAST_WORD_BIT: usize = 61;

    /// The doorbell's bit for a word, when there are several.
    #[inline]
    fn word_bit(group: usize) -> u64 {
        1 << group.min(Self::LAST_WORD_BIT)
    }

    /// Groups whose words lie in the doorbell's line: what the two words before them leave of 64 bytes.
    const FIRST_LINE_GROUPS: usize = 6;

    /// Asks for the lines that [`add`](Self::add) writes, by way of `prefetch`: that of the doorbell, and that of the bit where it is another.
    #[inline]
    pub(crate) fn prefetch(&self, initiator: CpuId, prefetch: impl Fn(usize)) {
        prefetch(self.doorbell_address().addr());
        if C::group(initiator) >= Self::FIRST_LINE_GROUPS {
            prefetch(self.initiators.address_of(initiator));
        }
    }

    /// Announces a published slot of `initiator`; true if the caller must send the interrupt.
    ///
    /// The caller has interrupts off until it has sent it: an interrupt handler here that found the
    /// doorbell rung would wait for an interrupt that no CPU sends.
    #[must_use]
    pub(crate) fn add(&self, initiator: CpuId, is_flush: bool) -> bool {
        // ORDERING: Release publishes the slot; pairs with the Acquire in `take`. Acquire: a responder that has emptied the inbox
        // before has taken back the hint before that, not after ours.
        let before = self.initiators.insert(initiator, Ordering::AcqRel);
        if !Self::IS_WIDE {
            if is_flush {
                // After the bit: the hint may come late, but does not get lost.
                // ORDERING: Release: a responder that sees the hint sees the bit; pairs with `is_urgent`.
                self.urgent.store(1, Ordering::Release);
            }
            return before == 0;
        }
        // A flush rings also where another's bit is: that one may not have rung yet, and a responder that takes the hint passes by a
        // word for which nobody has.
        let hint = if is_flush { Self::URGENT } else { 0 };
        (before == 0 || is_flush) && {
            let bit = Self::word_bit(C::group(initiator));
            // ORDERING: Release publishes the bit to the responder that empties the doorbell; see the module text.
            self.rung.fetch_or(bit | hint, Ordering::AcqRel) & !Self::URGENT == 0
        }
    }

    /// Whether no initiator is in it; a hint.
    #[inline]
    pub(crate) fn is_quiet(&self, me: CpuId) -> bool {
        self.doorbell().load(Ordering::Relaxed) & !(Self::mark(me) | Self::URGENT) == 0
    }

    /// Whether `initiator` is in it.
    #[cfg(feature = "sim")]
    pub(crate) fn has(&self, initiator: CpuId) -> bool {
        self.initiators.contains(initiator, Ordering::Relaxed)
    }

    /// Whether a flush may have come since [`take`](Self::take) was called; a hint.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        // ORDERING: Acquire: the taking that follows finds the bit that the hint is about; pairs with `add`.
        match Self::IS_WIDE {
            true => self.rung.load(Ordering::Acquire) & Self::URGENT != 0,
            false => self.urgent.load(Ordering::Acquire) != 0,
        }
    }

    /// Has this CPU's own polls look, though no flush has come. Interrupts are off.
    pub(crate) fn hint(&self) {
        match Self::IS_WIDE {
            // ORDERING: as in `hold`.
            true => _ = self.rung.fetch_or(Self::URGENT, Ordering::AcqRel),
            false => self.urgent.store(1, Ordering::Relaxed),
        }
    }

    /// Empties the inbox: `found` gets the word of each group that has initiators. False when it was quiet. Only its own CPU calls
    /// this, with interrupts off. If its doorbell `stays_held`, it looks again or lets it go; otherwise who comes next sends an interrupt.
    #[inline]
    pub(crate) fn take(
        &self,
        me: CpuId,
        stays_held: bool,
        mut found: impl FnMut(usize, u64),
    ) -> bool {
        if self.is_quiet(me) {
            // The hint stays: taken back here, it could hide a flush that comes after the look.
            return false;
        }
        if !Self::IS_WIDE {
            // Before the exchange: a flush that comes after that sets the hint after this.
            self.urgent.store(0, Ordering::Relaxed);
        }
        let mark = if stays_held { Self::mark(me) } else { 0 };
        // ORDERING: Acquire sees the slots behind the bits, or the bits of every initiator that found the doorbell rung;
        // pairs with `add`.
        let rung = self.doorbell().swap(mark, Ordering::AcqRel) & !(Self::mark(me) | Self::URGENT);
        if !Self::IS_WIDE {
            found(0, rung);
            return true;
        }
        let mut groups = rung;
        let words = C::WORDS;
        if words > Self::LAST_WORD_BIT && rung >> Self::LAST_WORD_BIT != 0 {
            groups |= u64::MAX << Self::LAST_WORD_BIT & u64::MAX >> (64 - words);
        }
        while groups != 0 {
            let group = groups.trailing_zeros() as usize;
            groups &= groups - 1;
            // ORDERING: Acquire sees the slots behind the bits; pairs with `add`.
            let word = self.initiators.group(group).swap(0, Ordering::Acquire);
            // An initiator may have rung after the last taking had found its bit.
            if word != 0 {
                found(group, word);
            }
        }
        true
    }

    /// Has the next [`take`](Self::take) look at every word, whether an initiator has rung for it or not. As `take`.
    pub(crate) fn ring_all(&self) {
        if Self::IS_WIDE {
            let words = C::WORDS.min(Self::LAST_WORD_BIT + 1);
            // ORDERING: as in `hold`.
            self.rung.fetch_or((1 << words) - 1, Ordering::AcqRel);
        }
    }

    /// Holds the doorbell: the caller will look again or let it go, and no interrupt is sent meanwhile. As [`take`](Self::take).
    pub(crate) fn hold(&self, me: CpuId) {
        // ORDERING: a read-modify-write that stays in the chain which the next `take` acquires.
        self.doorbell().fetch_or(Self::mark(me), Ordering::AcqRel);
    }

    /// Whether the doorbell is held.
    pub(crate) fn is_held(&self, me: CpuId) -> bool {
        self.doorbell().load(Ordering::Relaxed) & Self::mark(me) != 0
    }

    /// Where initiators write.
    pub(crate) fn doorbell_address(&self) -> *const u64 {
        core::ptr::from_ref(self.doorbell()).cast()
    }

    /// Lets the doorbell go; true if no initiator relies on it. If one does, the inbox must be emptied. As
    /// [`take`](Self::take).
    #[must_use]
    pub(crate) fn let_go(&self, me: CpuId) -> bool {
        // ORDERING: Acquire sees the bits of those that found only the mark; pairs with `add`.
        // Only this CPU sets the hint alone.
        let hint = self.doorbell().load(Ordering::Relaxed) & Self::URGENT;
        let silenced = self.doorbell().compare_exchange(
            Self::mark(me) | hint,
            hint,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        silenced.map_or_else(|seen| seen & !Self::URGENT == 0, |_| true)
    }

    /// Puts initiators of a group back that could not be served now. The caller is the inbox's own CPU and sees to it
    /// that it looks again.
    pub(crate) fn put_back(&self, group: usize, initiators: u64) {
        let cell = self.initiators.group(group);
        if !Self::IS_WIDE {
            // ORDERING: a read-modify-write, so that an initiator that rang just before stays in the chain
            // that the next `take` acquires.
            cell.fetch_or(initiators, Ordering::AcqRel);
            return;
        }
        cell.fetch_or(initiators, Ordering::Relaxed);
        // ORDERING: as above.
        self.rung.fetch_or(Self::word_bit(group), Ordering::AcqRel);
    }
}

#[cfg(all(test, loom))]
#[path = "inbox_models.rs"]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Inbox;
    extern crate std;
    use std::vec::Vec;

    use crate::cpu::CpuId;

    /// With 64 words the last three share a bit of the doorbell.
    #[test]
    fn the_last_words_are_found() {
        for initiators in [&[4095][..], &[4031], &[3903, 3967, 4031, 4095], &[0, 4095]] {
            let (inbox, me) = (Inbox::<crate::Cpus<4096>>::new(), CpuId::new(1));
            inbox.hold(me);
            for initiator in initiators {
                assert!(!inbox.add(CpuId::new(*initiator), false), "it is held");
            }
            let mut found = Vec::new();
            assert!(inbox.take(me, false, |group, word| {
                found.push(group as u32 * 64 + word.trailing_zeros());
            }));
            assert_eq!(found, initiators);
            assert!(inbox.add(CpuId::new(4095), false), "it is silent");
        }
    }

    /// A CPU that owes itself an interrupt has others interrupt it as before.
    #[test]
    fn a_hint_alone_is_no_initiator() {
        let (inbox, me, other) = (
            Inbox::<crate::Cpus<128>>::new(),
            CpuId::new(1),
            CpuId::new(70),
        );
        inbox.hold(me);
        inbox.hint();
        assert!(inbox.is_urgent() && inbox.is_quiet(me));
        assert!(inbox.let_go(me), "nobody relies on it");
        assert!(!inbox.is_held(me));
        assert!(inbox.add(other, false), "it must be interrupted");
        assert!(inbox.take(me, false, |group, word| assert_eq!(
            (group, word),
            (1, 1 << 6)
        )));
        assert!(!inbox.is_urgent());
    }
}
