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

use crate::call::ring_entry::{Announcement, Entry, LEAVES, Leaf, Seat, Word, mates};
use crate::call::{Number, Place, RequestRef, Ticket};
#[cfg(any(loom, feature = "sim"))]
use crate::sync::OwnWord;
#[cfg(all(feature = "sim", not(loom)))]
use crate::sync::line_name::{first_name, touches};
use crate::sync::{AtomicU64, Ordering, Padded, array_of, const_fn};

/// Entries: more broadcasts at a time go through the inboxes. They bound what a CPU has to read that has slept for long.
/// A power of two, so that tickets may go round.
#[cfg(not(loom))]
const LEN: usize = 4;
/// Two keep the models small.
#[cfg(loom)]
const LEN: usize = 2;

/// Tickets that a responder looks at in one go: those whose interrupt it has taken are among as many.
pub(crate) const MOST_READ: usize = 2 * LEN;

/// Tries to claim an entry; each that fails means that another initiator has succeeded.
const ATTEMPTS: usize = LEN;

/// The announcements for one group.
#[derive(Debug)]
pub struct Ring {
    /// The first ticket that is free, or an earlier one.
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
}

impl Ring {
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
        ticket.as_u64() as usize % self.len()
    }

    #[inline]
    fn entry(&self, ticket: Ticket) -> &Entry {
        &self.entries.0[self.index(ticket)]
    }

    /// The leaves of an entry that have targets in `targets`, and these.
    fn leaves_of(
        &self,
        ticket: Ticket,
        targets: u64,
        leaf_cpus: usize,
    ) -> impl Iterator<Item = (&Leaf, u64)> {
        let leaves = self.leaves.0[self.index(ticket)].iter().enumerate();
        leaves
            .map(move |(leaf, cell)| (cell, targets & mates(leaf, leaf_cpus)))
            .filter(|(_, targets)| *targets != 0)
    }

    /// The first ticket that a CPU has to read which nobody could name so far.
    #[inline]
    pub(crate) fn next(&self) -> Ticket {
        // ORDERING: Acquire keeps what makes the caller a target after it.
        Ticket::from_u64(self.next.0.load(Ordering::Acquire))
    }

    /// Uses `len` entries only; before the ring is used.
    #[cfg(feature = "sim")]
    pub(crate) fn shorten(&self, len: usize) {
        assert!(
            len.is_power_of_two() && len <= LEN,
            "a ring of {len} entries"
        );
        self.unused.set((LEN - len) as u64);
    }

    /// The CPUs that have claimed an entry and not completed it.
    #[cfg(feature = "sim")]
    pub(crate) fn claimants(&self) -> impl Iterator<Item = crate::cpu::CpuId> {
        let words = self.entries.0.iter();
        let words = words.map(|entry| Word(entry.word.load(Ordering::Relaxed)));
        let claimed = words.filter(|word| word.ticket().is_some() && !word.is_complete());
        claimed.map(|word| word.place().0)
    }

    /// Whether `request` is announced here.
    #[cfg(feature = "sim")]
    pub(crate) fn announces(&self, request: RequestRef) -> bool {
        (0..self.len()).any(|index| {
            let word = Word(self.entries.0[index].word.load(Ordering::Relaxed));
            word.is_complete() && self.request(word, index) == request
        })
    }

    /// Begins with `ticket`; before the ring is used.
    #[cfg(feature = "sim")]
    pub(crate) fn begin(&self, ticket: Ticket) {
        self.next.0.store(ticket.as_u64(), Ordering::Relaxed);
    }

    /// Announces a published slot to those CPUs of the group whose bits are in `targets`; true if there was room.
    /// `is_done` says whether a request is complete. The caller has interrupts off, and
    /// interrupts all targets afterwards.
    #[must_use]
    pub(crate) fn announce(
        &self,
        request: RequestRef,
        targets: u64,
        leaf_cpus: usize,
        is_done: impl Fn(RequestRef) -> bool,
    ) -> bool {
        let Some((ticket, claimed)) = self.claim(request, is_done) else {
            return false;
        };
        let entry = self.entry(ticket);
        self.numbers.0[self.index(ticket)].store(request.number.bits(), Ordering::Relaxed);
        for (leaf, targets) in self.leaves_of(ticket, targets, leaf_cpus) {
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
        let mut ticket = Ticket::from_u64(self.next.0.load(Ordering::Acquire));
        for _ in 0..ATTEMPTS {
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
            ticket.as_u64(),
            later.as_u64(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        moved.map_or_else(Ticket::from_u64, |_| later)
    }

    /// What was announced to `seat` under `ticket`.
    #[inline]
    pub(crate) fn read(&self, ticket: Ticket, seat: Seat) -> Announcement {
        let entry = self.entry(ticket);
        // ORDERING: Acquire sees the slot behind the entry; pairs with the Releases in `announce`.
        let seen = Word(entry.word.load(Ordering::Acquire));
        let Some(lying) = seen.ticket().filter(|lying| !lying.is_before(ticket)) else {
            return Announcement::Nothing;
        };
        if lying != ticket {
            // Tickets are claimed in order, each when the request one lap before it was complete: so all requests up to
            // `lying - LEN` are.
            return Announcement::Gone(lying.minus(self.len() as u64).plus(1));
        }
        if !seen.is_complete() {
            return Announcement::Incomplete;
        }
        // ORDERING: Acquire: the targets of a later lap bring the claim of that lap along.
        let is_ours = entry.targets.load(Ordering::Acquire) & seat.bit != 0;
        if entry.word.load(Ordering::Relaxed) != seen.0 {
            Announcement::Gone(ticket.plus(1))
        } else if is_ours {
            let (initiator, slot) = seen.place();
            let ticket = Some(ticket);
            Announcement::Ours(Place {
                initiator,
                slot,
                ticket,
            })
        } else {
            Announcement::NotOurs
        }
    }

    /// The CPU at `seat` has done what was announced under `ticket`. When it is the last of its leaf, returns whom that was about,
    /// as bits of their group: the caller clears them in the pending set.
    #[must_use]
    pub(crate) fn acknowledge(&self, ticket: Ticket, seat: Seat) -> Option<u64> {
        let leaf = &self.leaves.0[self.index(ticket)][seat.leaf].0;
        // ORDERING: Release publishes what we did to the last one, which acquires it and publishes it with the pending set.
        // As a locked operation it also orders an early acknowledgement before the flush that follows (T1).
        let before = leaf.fetch_and(!seat.bit, Ordering::AcqRel);
        // The entry is ours until the caller has cleared the bits.
        (before == seat.bit)
            .then(|| self.entry(ticket).targets.load(Ordering::Relaxed) & seat.mates)
    }

    /// What is announced by `word`, which lies complete at `index`.
    fn request(&self, word: Word, index: usize) -> RequestRef {
        let (initiator, slot) = word.place();
        RequestRef {
            initiator,
            slot,
            number: Number::from_header(self.numbers.0[index].load(Ordering::Relaxed)),
        }
    }

    /// The CPUs that have not acknowledged `request`, as bits, as far as it is announced here: for reports.
    pub(crate) fn pending(&self, request: RequestRef) -> u64 {
        let is_announced = |index: &usize| {
            let word = Word(self.entries.0[*index].word.load(Ordering::Relaxed));
            word.is_complete() && self.request(word, *index) == request
        };
        let index = (0..self.len()).find(is_announced);
        let leaves = index.into_iter().flat_map(|index| &self.leaves.0[index]);
        leaves.fold(0, |all, leaf| all | leaf.0.load(Ordering::Relaxed))
    }

    /// Whether something was announced under `ticket`; a hint.
    #[inline]
    pub(crate) fn is_due(&self, ticket: Ticket) -> bool {
        let lying = Word(self.entry(ticket).word.load(Ordering::Relaxed)).ticket();
        lying.is_some_and(|lying| !lying.is_before(ticket))
    }

    /// Asks for the lines that an announcement to `targets` will write next, by way of `prefetch`.
    pub(crate) fn prefetch(&self, targets: u64, leaf_cpus: usize, prefetch: impl Fn(usize)) {
        let ticket = Ticket::from_u64(self.next.0.load(Ordering::Relaxed));
        prefetch(core::ptr::from_ref(self.entry(ticket)).addr());
        for (leaf, _) in self.leaves_of(ticket, targets, leaf_cpus) {
            prefetch(core::ptr::from_ref(leaf).addr());
        }
    }
}
