//! [`Ring`]: requests for many CPUs, announced once for 64 neighbours.
//!
//! An inbox bit a target costs the initiator a cache line a target. Here it writes one line for each 64 CPUs that have targets
//! among them, and these read it; the price is that each target is interrupted, also one that somebody else has just interrupted.
//!
//! An entry names a published slot under a *ticket*; tickets go up by one, and ticket `t` lies at index `t % LEN`. Each CPU
//! remembers which tickets it has *heard* ([`Ears`]). So it looks at each once, and a broadcast costs nobody anything who is not
//! interrupted and does not look.
//!
//! * An entry is overwritten only when its request is complete: whoever finds it gone was not named in it, or has served
//!   it. When the entry of the last lap is still needed, the ring is full, and the initiator uses the inboxes.
//! * An entry is *claimed* by one exchange on its word. Then its initiator adds the targets and marks it *complete*. Who comes
//!   between the two hears those behind it, and this one when it is interrupted for it. So nobody waits for an
//!   initiator that a hypervisor has stopped between the two.
//! * Who hears an entry need not look at the slot's pending set, where others are acknowledging: a slot that was announced here
//!   is left alone by those that come through the inbox.
//! * The initiator interrupts all targets afterwards: an entry that names a CPU has an interrupt on its way, or a responder
//!   that will look again (I7).
//! * Targets acknowledge in a *leaf*, which eight neighbours share; the last of these clears the bits of all in the pending
//!   set. (One line that 64 CPUs take from each other one after the other was two thirds of the whole time.)

use crate::cpu::CpuId;
use crate::mask::bit_of;
use crate::sync::{AtomicU64, Ordering, OwnWord, Padded, array_of, const_fn};

/// Entries: more broadcasts at a time go through the inboxes. They bound what a CPU has to hear that has slept for long.
#[cfg(not(loom))]
const LEN: usize = 8;
/// Two keep the models small.
#[cfg(loom)]
const LEN: usize = 2;

/// Tickets that a responder looks at in one go: those whose interrupt it has taken are among as many.
pub(crate) const MOST_HEARD: usize = 2 * LEN;

/// CPUs that acknowledge in one leaf. The time grows with their number and with that of the leaves, which for 64 CPUs is the
/// same.
const LEAF_CPUS: usize = 8;

/// Tries to claim an entry; each that fails means that another initiator has succeeded.
const ATTEMPTS: usize = LEN;

/// Where a request lies, as an entry's word has it: ticket, initiator, slot, and whether the entry is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u64);

impl Word {
    const COMPLETE: u64 = 1;
    const SLOT_SHIFT: u32 = 1;
    const INITIATOR_SHIFT: u32 = 4;
    const TICKET_SHIFT: u32 = 16;

    #[inline]
    fn claimed(ticket: u64, (initiator, slot): (CpuId, usize)) -> Self {
        Self(
            ticket << Self::TICKET_SHIFT
                | (initiator.index() as u64) << Self::INITIATOR_SHIFT
                | (slot as u64) << Self::SLOT_SHIFT,
        )
    }

    #[inline]
    fn complete(self) -> Self {
        Self(self.0 | Self::COMPLETE)
    }

    #[inline]
    fn is_complete(self) -> bool {
        self.0 & Self::COMPLETE != 0
    }

    #[inline]
    fn ticket(self) -> u64 {
        self.0 >> Self::TICKET_SHIFT
    }

    #[inline]
    fn place(self) -> (CpuId, usize) {
        let initiator = (self.0 >> Self::INITIATOR_SHIFT) as usize % (1 << 12);
        let slot = (self.0 >> Self::SLOT_SHIFT) as usize % (1 << 3);
        (CpuId::from_index(initiator), slot)
    }
}

/// Four of them lie in a line.
#[derive(Debug)]
#[repr(C, align(16))]
struct Entry {
    word: AtomicU64,
    /// Which of the 64 CPUs.
    targets: AtomicU64,
}

/// Those of eight CPUs that have not acknowledged.
#[derive(Debug)]
#[repr(align(64))]
struct Leaf(AtomicU64);

/// What the entry of a ticket says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// There is none yet.
    Nothing,
    /// It is gone, and so are all before this ticket: their requests are complete.
    Gone(u64),
    /// A request that does not name the listener.
    NotOurs,
    /// A request that names the listener, in this slot of this CPU.
    Ours(CpuId, usize),
    /// Its initiator has not finished it, and has interrupted nobody for it.
    Incomplete,
}

/// The announcements for 64 CPUs.
#[derive(Debug)]
pub struct Ring {
    /// The first ticket that is free, or an earlier one.
    next: Padded<AtomicU64>,
    entries: Padded<[Entry; LEN]>,
    leaves: Padded<[[Leaf; 64 / LEAF_CPUS]; LEN]>,
    /// The sequence numbers of the requests, for initiators.
    sequences: Padded<[AtomicU64; LEN]>,
    /// Whether it is used at all: fewer steps for models that do without.
    #[cfg(loom)]
    pub(crate) is_used: OwnWord,
}

impl Ring {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                // Entries begin as those of a lap before, of no request.
                next: Padded(AtomicU64::new(LEN as u64)),
                entries: Padded(array_of!(Entry {
                    word: AtomicU64::new(0),
                    targets: AtomicU64::new(0),
                })),
                leaves: Padded(array_of!(array_of!(Leaf(AtomicU64::new(0))))),
                sequences: Padded(array_of!(AtomicU64::new(0))),
                #[cfg(loom)]
                is_used: OwnWord::new(),
            }
        }
    }

    #[inline]
    fn entry(&self, ticket: u64) -> &Entry {
        &self.entries.0[ticket as usize % LEN]
    }

    fn sequence(&self, ticket: u64) -> &AtomicU64 {
        &self.sequences.0[ticket as usize % LEN]
    }

    fn leaf(&self, ticket: u64, cpu: CpuId) -> &Leaf {
        &self.leaves.0[ticket as usize % LEN][cpu.index() % 64 / LEAF_CPUS]
    }

    /// The first ticket that a CPU has to hear which nobody could name so far.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        // ORDERING: Acquire keeps what makes the caller a target after it.
        self.next.0.load(Ordering::Acquire)
    }

    /// Announces a published slot to those CPUs of the ring whose bits are in `targets`; tells whether there was room.
    /// `is_done` says whether the request with this number in a slot is complete. The caller has interrupts off, and
    /// interrupts all targets afterwards.
    #[must_use]
    pub(crate) fn announce(
        &self,
        place: (CpuId, usize),
        sequence: u64,
        targets: u64,
        is_done: impl Fn((CpuId, usize), u64) -> bool,
    ) -> bool {
        // ORDERING: Acquire: our entry brings those before it along, so that who sees it looks past them; pairs with `advance`.
        let mut ticket = self.next.0.load(Ordering::Acquire);
        for _ in 0..ATTEMPTS {
            let entry = self.entry(ticket);
            // ORDERING: Acquire sees the number of the request that lies there; pairs with the Release below.
            let seen = Word(entry.word.load(Ordering::Acquire));
            if seen.ticket() >= ticket {
                // Somebody has it, and has perhaps not said so yet.
                ticket = self.advance(ticket);
                continue;
            }
            let was_used = seen.ticket() != 0;
            let number = self.sequence(ticket).load(Ordering::Relaxed);
            if was_used && !(seen.is_complete() && is_done(seen.place(), number)) {
                return false;
            }
            let claimed = Word::claimed(ticket, place);
            // ORDERING: Release publishes the slot, Acquire keeps what follows after the claim; pairs with `hear`.
            let won =
                entry
                    .word
                    .compare_exchange(seen.0, claimed.0, Ordering::AcqRel, Ordering::Relaxed);
            if won.is_err() {
                continue;
            }
            self.sequence(ticket).store(sequence, Ordering::Relaxed);
            for (leaf, cpus) in self.leaves.0[ticket as usize % LEN].iter().zip(leaves()) {
                if targets & cpus != 0 {
                    leaf.0.store(targets & cpus, Ordering::Relaxed);
                }
            }
            // ORDERING: Release: who sees these targets sees the claim too when it looks again; pairs with `hear`.
            entry.targets.store(targets, Ordering::Release);
            // ORDERING: Release publishes targets, leaves, number and slot; pairs with the Acquires above and in `hear`.
            entry.word.store(claimed.complete().0, Ordering::Release);
            self.advance(ticket);
            return true;
        }
        false
    }

    /// Notes that `ticket` is taken; returns a later one.
    fn advance(&self, ticket: u64) -> u64 {
        let (next, later) = (&self.next.0, ticket + 1);
        // ORDERING: Release publishes the entries before `ticket` and its claim, Acquire those that are further; pairs with
        // itself and with the load in `announce`.
        let moved = next.compare_exchange(ticket, later, Ordering::AcqRel, Ordering::Acquire);
        moved.map_or_else(|further| further, |_| later)
    }

    /// What was announced under `ticket`.
    #[inline]
    pub(crate) fn hear(&self, ticket: u64, me: CpuId) -> Heard {
        let entry = self.entry(ticket);
        // ORDERING: Acquire sees the slot behind the entry; pairs with the Releases in `announce`.
        let seen = Word(entry.word.load(Ordering::Acquire));
        if seen.ticket() < ticket {
            return Heard::Nothing;
        }
        if seen.ticket() > ticket {
            return Heard::Gone(seen.ticket() - LEN as u64 + 1);
        }
        if !seen.is_complete() {
            return Heard::Incomplete;
        }
        // ORDERING: Acquire: the targets of a later lap bring the claim of that lap along.
        let is_ours = entry.targets.load(Ordering::Acquire) & bit_of(me) != 0;
        if entry.word.load(Ordering::Relaxed) != seen.0 {
            Heard::Gone(ticket + 1)
        } else if is_ours {
            let (initiator, slot) = seen.place();
            Heard::Ours(initiator, slot)
        } else {
            Heard::NotOurs
        }
    }

    /// `me` has done what was announced under `ticket`. Returns whom its leaf was about, as bits of their word in the pending
    /// set, when all of them have: the caller clears them there.
    #[must_use]
    pub(crate) fn acknowledge(&self, ticket: u64, me: CpuId) -> Option<u64> {
        let leaf = &self.leaf(ticket, me).0;
        // ORDERING: Release publishes what we did to the last one, which acquires it and publishes it with the pending set.
        // As a locked operation it also orders an early acknowledgement before the flush that follows (T1).
        let before = leaf.fetch_and(!bit_of(me), Ordering::AcqRel);
        let cpus = leaves().nth(me.index() % 64 / LEAF_CPUS).unwrap_or(0);
        // The entry is ours until the caller has cleared the bits.
        (before == bit_of(me)).then(|| self.entry(ticket).targets.load(Ordering::Relaxed) & cpus)
    }

    /// Those that have not acknowledged request number `sequence` in a slot, as bits, as far as it is announced here: for
    /// reports.
    pub(crate) fn pending(&self, place: (CpuId, usize), sequence: u64) -> u64 {
        let of_place = |ticket: &usize| {
            let word = Word(self.entries.0[*ticket].word.load(Ordering::Relaxed));
            let number = self.sequences.0[*ticket].load(Ordering::Relaxed);
            word.is_complete() && word.place() == place && number == sequence
        };
        let ticket = (0..LEN).find(of_place);
        let leaves = ticket.into_iter().flat_map(|ticket| &self.leaves.0[ticket]);
        leaves.fold(0, |all, leaf| all | leaf.0.load(Ordering::Relaxed))
    }

    /// Whether something was announced under `ticket`; a hint.
    #[inline]
    pub(crate) fn is_due(&self, ticket: u64) -> bool {
        Word(self.entry(ticket).word.load(Ordering::Relaxed)).ticket() >= ticket
    }

    /// Asks for the lines that an announcement to `targets` will write next, by way of `prefetch`.
    pub(crate) fn prefetch(&self, targets: u64, prefetch: impl Fn(usize)) {
        let ticket = self.next.0.load(Ordering::Relaxed);
        prefetch(core::ptr::from_ref(self.entry(ticket)).addr());
        for (leaf, cpus) in self.leaves.0[ticket as usize % LEN].iter().zip(leaves()) {
            if targets & cpus != 0 {
                prefetch(core::ptr::from_ref(leaf).addr());
            }
        }
    }
}

/// The CPUs of each leaf, as bits.
fn leaves() -> impl Iterator<Item = u64> {
    let one = u64::MAX >> (64 - LEAF_CPUS);
    (0..64 / LEAF_CPUS).map(move |leaf| one << (leaf * LEAF_CPUS))
}

/// Which tickets one CPU has heard; its own.
#[derive(Debug)]
pub(crate) struct Ears {
    /// All before this one.
    next: OwnWord,
    /// And these: bit `i` is ticket `next + i`. A function waits while another runs, and the flushes behind it do not.
    later: OwnWord,
}

impl Ears {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            next: OwnWord::new(),
            later: OwnWord::new(),
        }
    }

    /// Begins to listen at `ticket`.
    #[inline]
    pub(crate) fn begin(&self, ticket: u64) {
        self.next.set(ticket);
        self.later.set(0);
    }

    /// The first ticket that was not heard.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    /// The first ticket from `ticket` on that was not heard; `None` beyond what a ring can hold.
    #[inline]
    pub(crate) fn next_from(&self, ticket: u64) -> Option<u64> {
        let ahead = ticket.max(self.next()) - self.next();
        let unheard = u64::MAX.checked_shl(ahead as u32)? & !self.later.get();
        (unheard != 0).then(|| self.next() + u64::from(unheard.trailing_zeros()))
    }

    /// `ticket`, one that was not, has been heard.
    #[inline]
    pub(crate) fn hear(&self, ticket: u64) {
        let later = self.later.get() | 1 << (ticket - self.next());
        self.later.set(later);
        self.forget(self.next() + u64::from(later.trailing_ones()));
    }

    /// All before `ticket` have been heard.
    #[inline]
    pub(crate) fn forget(&self, ticket: u64) {
        let ahead = ticket.max(self.next()) - self.next();
        self.later
            .set(self.later.get().checked_shr(ahead as u32).unwrap_or(0));
        self.next.set(self.next() + ahead);
    }
}
