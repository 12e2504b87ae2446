//! [`Ring`]: requests for many CPUs, announced once for all of a group.
//!
//! An inbox bit a target costs the initiator a cache line a target. Here it writes one line for each group that has targets
//! in it, and these read it; the price is that each target is interrupted, also one that another initiator has just interrupted.
//!
//! An entry names a published slot under a [`Ticket`]; ticket `t` lies at index `t % LEN`. Each CPU
//! remembers which tickets it has read ([`RingReader`](crate::call::RingReader)). So it looks at each once, and a broadcast
//! costs a CPU nothing that is not interrupted and does not look.
//!
//! * An entry is overwritten only when its request is complete: a CPU that finds it gone was not named in it, or has served
//!   it. When the entry of the last lap is still needed, the ring is full, and the initiator uses the inboxes.
//! * An entry is *claimed* by one exchange on its word. Then its initiator adds the targets and marks it *complete*. A CPU that
//!   comes between the two reads those behind it, and this one when it is interrupted for it. So no CPU waits for an
//!   initiator that a hypervisor has stopped between the two.
//! * A CPU that has read an entry need not look at the slot's pending set, where others are acknowledging: a slot that was
//!   announced here is left alone by those that come by their inbox.
//! * The initiator interrupts all targets afterwards: an entry that names a CPU has an interrupt on its way, or a responder
//!   that will look again (I7).
//! * Targets acknowledge in a *leaf*, which eight neighbours share; the last of these clears the bits of all in the pending
//!   set. (One line that 64 CPUs take from each other one after the other was two thirds of the whole time.)

use core::marker::PhantomData;

use crate::call::{Number, RequestRef, Ticket};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
#[cfg(any(loom, feature = "sim"))]
use crate::sync::OwnWord;
#[cfg(all(feature = "sim", not(loom)))]
use crate::sync::line_name::{first_name, touches};
use crate::sync::{AtomicU64, Ordering, Padded, array_of, const_fn};

/// Entries: more broadcasts at a time go through the inboxes. They bound what a CPU has to read that has slept for long.
/// A power of two, so that tickets may go round.
/// Two keep the models small.
const LEN: usize = if cfg!(loom) { 2 } else { 4 };

/// Leaves of a group at most. The time of a broadcast grows with the CPUs of a leaf and with the number of leaves, which
/// for 64 CPUs is the same. Two are all that models have CPUs for.
const LEAVES: usize = if cfg!(loom) { 2 } else { 8 };

/// Tickets that a responder looks at in one go: those whose interrupt it has taken are among as many.
pub(crate) const MOST_READ: usize = 2 * LEN;

/// What the entry of a ticket says to one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announcement {
    /// There is none yet.
    Nothing,
    /// It is gone, and so are all before this ticket: their requests are complete.
    Gone(Ticket),
    /// A request that does not name the reader.
    NotOurs,
    /// The request of this initiator in this slot names the reader.
    Ours(CpuId, usize),
    /// Its initiator has not finished it, and has interrupted no CPU for it.
    Incomplete,
}

/// What an entry's word says: ticket, initiator, slot, and how far the entry has come. Zero says that it was never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u64);

impl Word {
    const CLAIMED: u64 = 1;
    const COMPLETE: u64 = 2;
    const SLOT_SHIFT: u32 = 2;
    const INITIATOR_SHIFT: u32 = 4;

    #[inline]
    fn claimed(ticket: Ticket, initiator: CpuId, slot: usize) -> Self {
        Self(
            ticket.bits()
                | (initiator.index() as u64) << Self::INITIATOR_SHIFT
                | (slot as u64) << Self::SLOT_SHIFT
                | Self::CLAIMED,
        )
    }

    #[inline]
    fn complete(self) -> Self {
        Self(self.0 ^ (Self::CLAIMED | Self::COMPLETE))
    }

    #[inline]
    fn is_complete(self) -> bool {
        self.0 & Self::COMPLETE != 0
    }

    /// `None` in an entry that was never used.
    #[inline]
    fn ticket(self) -> Option<Ticket> {
        (self.0 != 0).then(|| Ticket::of_word(self.0))
    }

    #[inline]
    fn place(self) -> (CpuId, usize) {
        let initiator = (self.0 >> Self::INITIATOR_SHIFT) as usize % (1 << 12);
        let slot = (self.0 >> Self::SLOT_SHIFT) as usize % (1 << 2);
        (CpuId::from_index(initiator), slot)
    }
}

/// Four of them lie in a line.
#[derive(Debug)]
#[repr(C, align(16))]
struct Entry {
    /// A [`Word`].
    word: AtomicU64,
    /// Which CPUs of the group.
    targets: AtomicU64,
}

/// Those CPUs of a leaf that have not acknowledged.
#[derive(Debug)]
#[repr(align(64))]
struct Leaf(AtomicU64);

/// The announcements for one group.
#[derive(Debug)]
pub struct Ring<C> {
    /// The first [`Ticket`] that is free, or an earlier one.
    next: Padded<AtomicU64>,
    entries: Padded<[Entry; LEN]>,
    leaves: Padded<[[Leaf; LEAVES]; LEN]>,
    /// The numbers of the requests, for initiators.
    numbers: Padded<[AtomicU64; LEN]>,
    /// Whether it is used at all: fewer steps for models that do without.
    #[cfg(loom)]
    pub(crate) is_used: OwnWord,
    /// How many entries are not used.
    #[cfg(feature = "sim")]
    pub(crate) unused: OwnWord,
    capacity: PhantomData<C>,
}

impl<C: Capacity> Ring<C> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                next: Padded(AtomicU64::new(0)),
                entries: Padded(array_of!(Entry {
                    word: AtomicU64::new(0),
                    targets: AtomicU64::new(0),
                }; LEN)),
                leaves: Padded(array_of!(array_of!(Leaf(AtomicU64::new(0)); LEAVES); LEN)),
                numbers: Padded(array_of!(AtomicU64::new(0); LEN)),
                #[cfg(loom)]
                is_used: OwnWord::new(),
                #[cfg(feature = "sim")]
                unused: OwnWord::new(),
                capacity: PhantomData,
            }
        }
    }

    /// What the line at `address` holds, if it is one of this ring.
    #[cfg(all(feature = "sim", not(loom)))]
    pub(crate) fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&self.next, address), "ring: next"),
            (touches(&self.entries, address), "ring: entries"),
            (touches(&self.leaves, address), "ring: leaves"),
            (touches(&self.numbers, address), "ring: numbers"),
        ])
    }

    /// How many entries there are; the simulator draws it.
    #[inline]
    fn len(&self) -> usize {
        #[cfg(feature = "sim")]
        return LEN - self.unused.get() as usize;
        #[cfg(not(feature = "sim"))]
        return LEN;
    }

    #[inline]
    fn index(&self, ticket: Ticket) -> usize {
        ticket.count() as usize % self.len()
    }

    #[inline]
    fn entry(&self, ticket: Ticket) -> &Entry {
        &self.entries.0[self.index(ticket)]
    }

    #[inline]
    fn leaf_of(cpu: CpuId) -> usize {
        cpu.index() % C::GROUP_CPUS / C::LEAF_CPUS
    }

    /// The CPUs of a leaf, as bits of their group.
    #[inline]
    fn mates(leaf: usize) -> u64 {
        ((1 << C::LEAF_CPUS) - 1) << (leaf * C::LEAF_CPUS)
    }

    /// The leaves of an entry that have targets in `targets`, and these.
    fn leaves_of(&self, ticket: Ticket, targets: u64) -> impl Iterator<Item = (&Leaf, u64)> {
        let leaves = self.leaves.0[self.index(ticket)].iter().enumerate();
        leaves
            .map(move |(leaf, cell)| (cell, targets & Self::mates(leaf)))
            .filter(|(_, targets)| *targets != 0)
    }

    /// The first ticket that a CPU has to read which nobody could name so far.
    #[inline]
    pub(crate) fn next(&self) -> Ticket {
        // ORDERING: Acquire keeps what makes the caller a target after it.
        Ticket::of_word(self.next.0.load(Ordering::Acquire))
    }

    /// The same when CPUs have died: one may have done so between its claim and saying so.
    pub(crate) fn next_unclaimed(&self) -> Ticket {
        let mut ticket = self.next();
        let is_taken = |ticket| {
            // ORDERING: as in `next`.
            let lying = Word(self.entry(ticket).word.load(Ordering::Acquire)).ticket();
            lying.is_some_and(|lying| !lying.is_before(ticket))
        };
        while is_taken(ticket) {
            ticket = self.advance(ticket);
        }
        ticket
    }

    /// Begins with `ticket`, and uses `len` entries only; before the ring is used.
    #[cfg(feature = "sim")]
    pub(crate) fn begin(&self, ticket: Ticket, len: usize) {
        assert!(
            len.is_power_of_two() && len <= LEN,
            "a ring of {len} entries"
        );
        self.unused.set((LEN - len) as u64);
        self.next.0.store(ticket.bits(), Ordering::Relaxed);
    }

    /// The CPUs that have claimed an entry and not completed it.
    #[cfg(feature = "sim")]
    pub(crate) fn claimants(&self) -> impl Iterator<Item = CpuId> {
        let words = self.entries.0.iter();
        let words = words.map(|entry| Word(entry.word.load(Ordering::Relaxed)));
        let claimed = words.filter(|word| word.ticket().is_some() && !word.is_complete());
        claimed.map(|word| word.place().0)
    }

    /// Announces a published slot to those CPUs of the group whose bits are in `targets`; true if there was room.
    /// `is_done` says whether a request is complete. The caller has interrupts off, and
    /// interrupts all targets afterwards.
    #[must_use]
    pub(crate) fn announce(
        &self,
        request: RequestRef,
        targets: u64,
        is_done: impl Fn(RequestRef) -> bool,
    ) -> bool {
        let Some((ticket, claimed)) = self.claim(request, is_done) else {
            return false;
        };
        let entry = self.entry(ticket);
        self.numbers.0[self.index(ticket)].store(request.number.bits(), Ordering::Relaxed);
        for (leaf, targets) in self.leaves_of(ticket, targets) {
            leaf.0.store(targets, Ordering::Relaxed);
        }
        // ORDERING: Release: a responder that sees these targets sees the claim too when it looks again; pairs with `read`.
        entry.targets.store(targets, Ordering::Release);
        // ORDERING: Release publishes targets, leaves, number and slot; pairs with the Acquires in `claim` and in `read`.
        entry.word.store(claimed.complete().0, Ordering::Release);
        self.advance(ticket);
        true
    }

    /// Claims the next entry for a request; `None` if the ring is full.
    fn claim(
        &self,
        request: RequestRef,
        is_done: impl Fn(RequestRef) -> bool,
    ) -> Option<(Ticket, Word)> {
        // ORDERING: Acquire: our entry brings those before it along, so that a responder that sees it looks past them; pairs with `advance`.
        let mut ticket = Ticket::of_word(self.next.0.load(Ordering::Acquire));
        // Each try that fails means that another initiator has succeeded.
        for _ in 0..LEN {
            let entry = self.entry(ticket);
            // ORDERING: Acquire sees the number of the request that lies there; pairs with the Release in `announce`.
            let seen = Word(entry.word.load(Ordering::Acquire));
            if let Some(lying) = seen.ticket() {
                if !lying.is_before(ticket) {
                    // Another initiator has it, and may not have said so yet.
                    ticket = self.advance(ticket);
                    continue;
                }
                if !(seen.is_complete() && is_done(self.request(seen, self.index(ticket)))) {
                    return None;
                }
            }
            let claimed = Word::claimed(ticket, request.initiator, request.slot);
            // ORDERING: Release publishes the slot, Acquire keeps what follows after the claim; pairs with `read`.
            let won =
                entry
                    .word
                    .compare_exchange(seen.0, claimed.0, Ordering::AcqRel, Ordering::Relaxed);
            if won.is_ok() {
                return Some((ticket, claimed));
            }
        }
        None
    }

    /// Notes that `ticket` is taken; returns a later one.
    fn advance(&self, ticket: Ticket) -> Ticket {
        let later = ticket.plus(1);
        // ORDERING: Release publishes the entries before `ticket` and its claim, Acquire those that are further; pairs with
        // itself and with the load in `claim`.
        let moved = self.next.0.compare_exchange(
            ticket.bits(),
            later.bits(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        moved.map_or_else(Ticket::of_word, |_| later)
    }

    /// What was announced to `cpu` under `ticket`.
    #[inline]
    pub(crate) fn read(&self, ticket: Ticket, cpu: CpuId) -> Announcement {
        let entry = self.entry(ticket);
        // ORDERING: Acquire sees the slot behind the entry; pairs with the Releases in `announce`.
        let seen = Word(entry.word.load(Ordering::Acquire));
        let Some(lying) = seen.ticket().filter(|lying| !lying.is_before(ticket)) else {
            return Announcement::Nothing;
        };
        if lying != ticket {
            // Tickets are claimed in order, each when the request one lap before it was complete: so all requests up to
            // `lying - LEN` are.
            return Announcement::Gone(lying.minus(self.len() as u64 - 1));
        }
        if !seen.is_complete() {
            return Announcement::Incomplete;
        }
        // ORDERING: Acquire: the targets of a later lap bring the claim of that lap along.
        let is_ours = entry.targets.load(Ordering::Acquire) & C::bit(cpu) != 0;
        if entry.word.load(Ordering::Relaxed) != seen.0 {
            Announcement::Gone(ticket.plus(1))
        } else if is_ours {
            let (initiator, slot) = seen.place();
            Announcement::Ours(initiator, slot)
        } else {
            Announcement::NotOurs
        }
    }

    /// `cpu` has done what was announced under `ticket`. When it is the last of its leaf, returns whom that was about,
    /// as bits of their group: the caller clears them in the pending set.
    #[must_use]
    pub(crate) fn acknowledge(&self, ticket: Ticket, cpu: CpuId) -> Option<u64> {
        self.leave_leaf(self.index(ticket), cpu, false).1
    }

    /// As [`acknowledge`](Self::acknowledge), for what is announced at `index`; also returns whether `cpu` had not done so. In place of a CPU that has stopped for good, and since when all others were elsewhere, with
    /// `is_dead_and_settled`: then an empty leaf is one whose last CPU it was, and did not say so.
    #[inline]
    pub(crate) fn leave_leaf(
        &self,
        index: usize,
        cpu: CpuId,
        is_dead_and_settled: bool,
    ) -> (bool, Option<u64>) {
        let (leaf, bit) = (Self::leaf_of(cpu), C::bit(cpu));
        let word = &self.leaves.0[index][leaf].0;
        // ORDERING: Release publishes what we did to the last one, which acquires it and publishes it with the pending set.
        // As a locked operation it also orders an early acknowledgement before the flush that follows (T1).
        let before = word.fetch_and(!bit, Ordering::AcqRel);
        let is_last = before == bit || before == 0 && is_dead_and_settled;
        // The entry is ours until the caller has cleared the bits.
        let leaf = is_last
            .then(|| self.entries.0[index].targets.load(Ordering::Relaxed) & Self::mates(leaf));
        (before & bit != 0, leaf)
    }

    /// Completes the entries that `dead`, which has stopped for good, has claimed: for nobody. Its targets are found by their inboxes.
    pub(crate) fn complete_for(&self, dead: CpuId) {
        for (entry, leaves) in self.entries.0.iter().zip(&self.leaves.0) {
            let word = Word(entry.word.load(Ordering::Relaxed));
            let is_claimed = word.ticket().is_some() && !word.is_complete();
            if is_claimed && word.place().0 == dead {
                leaves
                    .iter()
                    .for_each(|leaf| leaf.0.store(0, Ordering::Relaxed));
                entry.targets.store(0, Ordering::Relaxed);
                // ORDERING: as in `announce`.
                entry.word.store(word.complete().0, Ordering::Release);
            }
        }
    }

    /// Whether what is announced at `index` names any CPU.
    pub(crate) fn names_any(&self, index: usize) -> bool {
        self.entries.0[index].targets.load(Ordering::Relaxed) != 0
    }

    /// What is announced by `word`, which lies complete at `index`.
    fn request(&self, word: Word, index: usize) -> RequestRef {
        let (initiator, slot) = word.place();
        RequestRef {
            initiator,
            slot,
            number: Number::of_word(self.numbers.0[index].load(Ordering::Relaxed)),
        }
    }

    /// At which index `request` is announced, for reports.
    pub(crate) fn index_of(&self, request: RequestRef) -> Option<usize> {
        (0..self.len()).find(|index| {
            let word = Word(self.entries.0[*index].word.load(Ordering::Relaxed));
            word.is_complete() && self.request(word, *index) == request
        })
    }

    /// The CPUs that have not acknowledged `request`, as bits, as far as it is announced here: for reports.
    pub(crate) fn pending(&self, request: RequestRef) -> u64 {
        let index = self.index_of(request).into_iter();
        let leaves = index.flat_map(|index| &self.leaves.0[index]);
        leaves.fold(0, |all, leaf| all | leaf.0.load(Ordering::Relaxed))
    }

    /// The CPUs that share the leaf of `cpu`, as bits of their group.
    #[cfg(feature = "sim")]
    pub(crate) fn mates_of(cpu: CpuId) -> u64 {
        Self::mates(Self::leaf_of(cpu))
    }

    /// Whether something was announced under `ticket`; a hint.
    #[inline]
    pub(crate) fn is_due(&self, ticket: Ticket) -> bool {
        let lying = Word(self.entry(ticket).word.load(Ordering::Relaxed)).ticket();
        lying.is_some_and(|lying| !lying.is_before(ticket))
    }

    /// Asks for the lines that an announcement to `targets` will write next, by way of `prefetch`.
    pub(crate) fn prefetch(&self, targets: u64, prefetch: impl Fn(usize)) {
        let ticket = Ticket::of_word(self.next.0.load(Ordering::Relaxed));
        prefetch(core::ptr::from_ref(self.entry(ticket)).addr());
        for (leaf, _) in self.leaves_of(ticket, targets) {
            prefetch(core::ptr::from_ref(leaf).addr());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Word;
    use crate::call::{SLOTS, Ticket};
    use crate::cpu::CpuId;

    #[test]
    fn a_word_keeps_the_largest_of_everything() {
        let first = Ticket::of_word(0);
        let last = first.minus(1);
        for ticket in [first, first.plus(1), last] {
            for place in [(0, SLOTS - 1), (4095, 0), (4095, SLOTS - 1)] {
                let place = (CpuId::from_index(place.0), place.1);
                let claimed = Word::claimed(ticket, place.0, place.1);
                let complete = claimed.complete();
                assert!(!claimed.is_complete() && complete.is_complete());
                for word in [claimed, complete] {
                    assert_eq!((word.ticket(), word.place()), (Some(ticket), place));
                }
            }
        }
    }
}
