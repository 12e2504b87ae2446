//! What a thread may see of a page that another thread fills and discards.
//!
//! The initiator goes through *rounds*, and publishes each step in one word, the *epoch*, which
//! only grows:
//!
//! | epoch    | meaning                                              | the page may hold |
//! |----------|------------------------------------------------------|-------------------|
//! | `Fill k` | published before the first write of round k's value  | 0 or value k      |
//! | `Held k` | every page holds value k                             | value k           |
//! | `Drop k` | published before the discard is called               | value k or 0      |
//! | `Gone k` | published after the discard returned                 | 0                 |
//!
//! `Fill k+1` follows `Gone k`. A spinner loads the epoch, then the page, then the epoch again,
//! and so knows that the page's load happened between two steps. The verdict uses only that:
//!
//! * value k with the *first* epoch at `Gone k` or later: **stale**. The load began after the
//!   discard had returned. If the first epoch is older, the load itself may be older, whatever
//!   the second epoch says; that is no verdict.
//! * zero, or another round's value, with *both* epochs `Held k`: **lost**.
//! * value k with the *second* epoch before `Fill k`: impossible, as is anything that is not a
//!   value of this page: **foreign**.
//!
//! Why this holds on x86 (Intel SDM vol. 3, 9.2 and 4.10.5): loads are not reordered with loads,
//! nor stores with stores. So if the first load of the epoch returned `Gone k`, the page's load is
//! ordered after the initiator's store of it, hence after the discard's return. A processor may
//! *execute* the page's load early, even with an old translation, but then both loads are still
//! in flight together; the flush reaches this CPU as an interrupt, and an interrupt is taken
//! between instructions: either both had retired, and the first had returned an epoch before
//! `Gone k`, or both are executed again after the flush. A kernel that acknowledges before it
//! flushes changes nothing, since this thread executes no instruction in between. Lost pages:
//! zero comes from a page-table entry written after `Drop k` was published, and the second epoch
//! is loaded after the page, so it cannot be older than `Drop k`.

use std::fmt;

/// A step of the initiator: the round and what it is doing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

const STEPS: u64 = 4;
const FILL: u64 = 0;
const HELD: u64 = 1;
const DROP: u64 = 2;
const GONE: u64 = 3;

impl Epoch {
    /// Before the first write of round `round`.
    pub const fn fill(round: u64) -> Self {
        Self(round * STEPS + FILL)
    }

    /// Every page holds the value of `round`.
    pub const fn held(round: u64) -> Self {
        Self(round * STEPS + HELD)
    }

    /// Before the discard of `round` is called.
    pub const fn drop_begun(round: u64) -> Self {
        Self(round * STEPS + DROP)
    }

    /// The discard of `round` has returned.
    pub const fn gone(round: u64) -> Self {
        Self(round * STEPS + GONE)
    }

    /// As stored in a shared word.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From a shared word.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = ["fill", "held", "drop", "gone"][(self.0 % STEPS) as usize];
        write!(f, "{step} {}", self.0 / STEPS)
    }
}

const MAGIC: u64 = 0xA5;
const MAGIC_SHIFT: u32 = 56;
const PAGE_SHIFT: u32 = 40;
const ROUND_MASK: u64 = (1 << PAGE_SHIFT) - 1;

/// The value of `page` in `round`; never zero. Rounds count from 1 and fit 40 bits.
pub const fn value(page: usize, round: u64) -> u64 {
    (MAGIC << MAGIC_SHIFT) | ((page as u64) << PAGE_SHIFT) | (round & ROUND_MASK)
}

/// What one access proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing wrong.
    Fine,
    /// A value was seen after its discard had returned.
    Stale,
    /// A value was missing while it had to be there.
    Lost,
    /// Something that was never stored in this page, or not yet.
    Foreign,
}

/// Judges `seen`, loaded from `page` between the loads of `first` and `second`.
pub fn judge(page: usize, first: Epoch, seen: u64, second: Epoch) -> Verdict {
    let round = seen & ROUND_MASK;
    if seen != 0 && (seen != value(page, round) || round == 0 || second < Epoch::fill(round)) {
        return Verdict::Foreign;
    }
    if seen != 0 && first >= Epoch::gone(round) {
        return Verdict::Stale;
    }
    let held = first == second && first.0 % STEPS == HELD;
    if held && seen != value(page, first.0 / STEPS) {
        return Verdict::Lost;
    }
    Verdict::Fine
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::*;

    #[test]
    fn old_value_after_the_call_returned_is_stale() {
        let old = value(2, 5);
        assert_eq!(judge(2, Epoch::gone(5), old, Epoch::gone(5)), Stale);
        assert_eq!(judge(2, Epoch::gone(5), old, Epoch::held(6)), Stale);
        assert_eq!(judge(2, Epoch::held(6), old, Epoch::held(6)), Stale);
    }

    #[test]
    fn old_value_is_fine_when_the_load_may_be_older_than_the_return() {
        let old = value(2, 5);
        for first in [Epoch::fill(5), Epoch::held(5), Epoch::drop_begun(5)] {
            for second in [Epoch::drop_begun(5), Epoch::gone(5), Epoch::held(9)] {
                assert_eq!(judge(2, first, old, second), Fine, "{first} .. {second}");
            }
        }
    }

    #[test]
    fn zero_is_fine_whenever_a_discard_or_a_fill_may_be_under_way() {
        for first in [Epoch::drop_begun(5), Epoch::gone(5), Epoch::fill(6)] {
            assert_eq!(judge(0, first, 0, first), Fine);
        }
        assert_eq!(judge(0, Epoch::held(5), 0, Epoch::drop_begun(5)), Fine);
        assert_eq!(judge(0, Epoch::fill(5), 0, Epoch::held(5)), Fine);
    }

    #[test]
    fn zero_while_the_value_is_held_is_lost() {
        assert_eq!(judge(0, Epoch::held(5), 0, Epoch::held(5)), Lost);
    }

    #[test]
    fn values_of_other_pages_the_future_and_nobody_are_foreign() {
        let now = Epoch::held(5);
        assert_eq!(judge(0, now, value(1, 5), now), Foreign);
        assert_eq!(judge(0, now, value(0, 6), now), Foreign);
        assert_eq!(judge(0, now, 1, now), Foreign);
        assert_eq!(judge(0, now, value(0, 6), Epoch::fill(6)), Fine);
    }
}
