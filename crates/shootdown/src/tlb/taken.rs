//! What CPUs were spared by a flush that reached them without an interrupt ([`Platform::flush_remote`](crate::Platform::flush_remote)).
//!
//! A responder drops page by page only if it was told of every generation since its own (I3). Nobody tells a CPU of a change that
//! a back end has dropped there; so its next request would look like a gap, and cost all its translations. Two notes say otherwise:
//!
//! * [`TakenRun`], one word a space: the latest changes, one after the other, that back ends have dropped on every CPU that had to. One
//!   write a change, however many CPUs there are.
//! * [`TakenNote`], a CPU's: changes of a space that have been dropped there. An initiator writes it for a CPU that was taken while others
//!   are interrupted, and for one that it interrupts after such a run.
//!
//! Both may be lost: that costs a full flush.

use crate::sync::{AtomicU64, Ordering, const_fn};
use crate::tlb::{SpaceId, TlbGen};

/// Changes of one space, all after `since` up to `newest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Changes {
    pub(super) since: TlbGen,
    pub(super) newest: TlbGen,
}

impl Changes {
    /// This one.
    pub(super) fn only(change: TlbGen) -> Self {
        Self {
            since: TlbGen::from_raw(change.as_u64() - 1),
            newest: change,
        }
    }

    /// All of both if none is missing between them, else the newer ones.
    fn or_newer(self, other: Self) -> Self {
        let is_apart = self.since > other.newest || other.since > self.newest;
        match is_apart {
            true if self.newest > other.newest => self,
            true => other,
            false => Self {
                since: self.since.min(other.since),
                newest: self.newest.max(other.newest),
            },
        }
    }
}

/// The latest run of a space's changes that no CPU needs to be told of.
#[derive(Debug)]
pub(crate) struct TakenRun(AtomicU64);

impl TakenRun {
    /// Bits of the run's length; the newest change is above them. From change 2^48 on there are no runs.
    const LENGTH_BITS: u32 = 16;
    const LONGEST: u64 = (1 << Self::LENGTH_BITS) - 1;

    const_fn! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Every CPU that had the space loaded, and none was left out, has dropped what `change` is about.
    pub(super) fn add(&self, change: TlbGen) {
        let newest = change.as_u64();
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (end, length) = (seen >> Self::LENGTH_BITS, seen & Self::LONGEST);
            if end >= newest {
                // Another was quicker, with a later change: the run begins there.
                return;
            }
            let length = match end + 1 == newest {
                true => (length + 1).min(Self::LONGEST),
                false => 1,
            };
            let run = newest << Self::LENGTH_BITS | length;
            // ORDERING: Release: who acquires the run comes after all flushes in it, those of others too: each of these exchanges goes on
            // from the one before. Pairs with `read`.
            match (self.0).compare_exchange(seen, run, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The newest change, and how many there are.
    fn read(&self) -> (u64, u64) {
        // ORDERING: Acquire: see `add`.
        let seen = self.0.load(Ordering::Acquire);
        (seen >> Self::LENGTH_BITS, seen & Self::LONGEST)
    }

    /// Whether all changes after `since` up to `newest` are in the run.
    pub(super) fn covers(&self, since: TlbGen, newest: TlbGen) -> bool {
        let (end, length) = self.read();
        end >= newest.as_u64() && end - length <= since.as_u64()
    }

    /// The run that ends just before `change`.
    pub(super) fn before(&self, change: TlbGen) -> Option<Changes> {
        let (end, length) = self.read();
        (length > 0 && end + 1 == change.as_u64()).then(|| Changes {
            since: TlbGen::from_raw(end - length),
            newest: TlbGen::from_raw(end),
        })
    }
}

/// Changes that have been dropped on one CPU without its knowing. Other CPUs write it, rarely.
#[derive(Debug)]
pub(crate) struct TakenNote {
    /// Odd while somebody writes.
    turn: AtomicU64,
    space: AtomicU64,
    since: AtomicU64,
    newest: AtomicU64,
}

impl TakenNote {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                turn: AtomicU64::new(0),
                space: AtomicU64::new(0),
                since: AtomicU64::new(0),
                newest: AtomicU64::new(0),
            }
        }
    }

    /// Each of `changes` to `space` has been dropped there, if the CPU had to, or will be before it runs. Nothing is written while somebody else
    /// writes.
    pub(super) fn write(&self, space: SpaceId, changes: Changes) {
        let turn = self.turn.load(Ordering::Relaxed);
        let odd = turn | 1;
        if turn == odd
            // ORDERING: Acquire keeps the look and the writes after it; pairs with the Release below.
            || (self.turn)
                .compare_exchange(turn, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let known = match self.space.load(Ordering::Relaxed) == space.raw() {
            true => changes.or_newer(self.changes()),
            false => changes,
        };
        // ORDERING: Release: who reads any of these sees that `turn` is odd, or new; pairs with `read`.
        self.space.store(space.raw(), Ordering::Release);
        self.since.store(known.since.as_u64(), Ordering::Release);
        self.newest.store(known.newest.as_u64(), Ordering::Release);
        // ORDERING: Release publishes the note; pairs with `read`.
        self.turn.store(turn.wrapping_add(2), Ordering::Release);
    }

    /// What of `space` this CPU has dropped. On the CPU itself; nothing while somebody writes.
    pub(super) fn read(&self, space: SpaceId) -> Option<Changes> {
        // ORDERING: Acquire: the note as it was published; pairs with `write`.
        let turn = self.turn.load(Ordering::Acquire);
        // ORDERING: Acquire: a later writer's word shows that it writes.
        let named = self.space.load(Ordering::Acquire);
        let changes = self.changes();
        let is_whole = turn & 1 == 0 && self.turn.load(Ordering::Relaxed) == turn;
        (is_whole && named == space.raw()).then_some(changes)
    }

    fn changes(&self) -> Changes {
        // ORDERING: Acquire: as in `read`.
        Changes {
            since: TlbGen::from_raw(self.since.load(Ordering::Acquire)),
            newest: TlbGen::from_raw(self.newest.load(Ordering::Acquire)),
        }
    }
}

#[cfg(all(test, loom))]
#[path = "taken_models.rs"]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Changes, TakenNote, TakenRun};
    use crate::sync::Ordering;
    use crate::tlb::{SpaceId, TlbGen};

    fn generation(number: u64) -> TlbGen {
        TlbGen::from_raw(number)
    }

    fn changes(since: u64, newest: u64) -> Changes {
        Changes {
            since: generation(since),
            newest: generation(newest),
        }
    }

    #[test]
    fn a_run_is_what_comes_one_after_the_other_just_before() {
        let run = TakenRun::new();
        assert_eq!(run.before(generation(1)), None);
        for change in [3, 4, 5] {
            run.add(generation(change));
        }
        assert_eq!(run.before(generation(6)), Some(changes(2, 5)));
        assert_eq!(run.before(generation(5)), None);
        assert_eq!(run.before(generation(7)), None);
        // Late, and after a gap.
        run.add(generation(2));
        assert_eq!(run.before(generation(6)), Some(changes(2, 5)));
        run.add(generation(9));
        assert_eq!(run.before(generation(10)), Some(changes(8, 9)));
        assert_eq!(run.before(generation(6)), None);
    }

    #[test]
    fn a_run_has_a_longest_length() {
        let run = TakenRun::new();
        (1..=TakenRun::LONGEST + 3).for_each(|change| run.add(generation(change)));
        let end = TakenRun::LONGEST + 3;
        assert_eq!(run.before(generation(end + 1)), Some(changes(3, end)));
    }

    #[test]
    fn a_note_is_of_one_space_and_has_no_gap() {
        let (one, other) = (SpaceId::from_raw(1), SpaceId::from_raw(2));
        let note = TakenNote::new();
        assert_eq!(note.read(one), None);
        let after = |written, known| {
            note.write(one, written);
            assert_eq!((note.read(one), note.read(other)), (Some(known), None));
        };
        after(changes(4, 6), changes(4, 6));
        after(Changes::only(generation(7)), changes(4, 7));
        after(Changes::only(generation(4)), changes(3, 7));
        after(changes(0, 2), changes(3, 7));
        after(changes(8, 9), changes(8, 9));
        after(changes(6, 9), changes(6, 9));
        note.write(other, changes(2, 3));
        assert_eq!(
            (note.read(one), note.read(other)),
            (None, Some(changes(2, 3)))
        );
    }

    #[test]
    fn a_note_that_somebody_writes_is_left_alone() {
        let space = SpaceId::from_raw(1);
        let note = TakenNote::new();
        note.write(space, changes(4, 6));
        note.turn.store(3, Ordering::Relaxed);
        assert_eq!(note.read(space), None);
        note.write(space, changes(6, 7));
        note.turn.store(4, Ordering::Relaxed);
        assert_eq!(note.read(space), Some(changes(4, 6)));
    }
}
