//! [`TagRun`]: the latest changes of a space that were dropped on every CPU under its [global tag](crate::remote::GlobalTags).
//!
//! Nobody tells a CPU of them. One that loads the space under that tag again finds here that what the tag holds is as new as it needs
//! (I3). One write a change, however many CPUs there are; a run that is lost costs a full flush.

use crate::sync::{AtomicU64, Ordering, const_fn};
use crate::tlb::TlbGen;

/// One after the other.
#[derive(Debug)]
pub(crate) struct TagRun(AtomicU64);

impl TagRun {
    /// Bits of the run's length; the newest change is above them. From change 2^48 on there are no runs.
    const LENGTH_BITS: u32 = 16;
    const LONGEST: u64 = (1 << Self::LENGTH_BITS) - 1;

    const_fn! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Every CPU has dropped what `change` is about under the space's tag.
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

    /// Whether all changes after `since` up to `newest` are in the run.
    pub(super) fn covers(&self, since: TlbGen, newest: TlbGen) -> bool {
        // ORDERING: Acquire: see `add`.
        let seen = self.0.load(Ordering::Acquire);
        let (end, length) = (seen >> Self::LENGTH_BITS, seen & Self::LONGEST);
        end >= newest.as_u64() && end - length <= since.as_u64()
    }
}

#[cfg(all(test, loom))]
#[path = "tag_run_models.rs"]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::TagRun;
    use crate::tlb::TlbGen;

    fn covers(run: &TagRun, since: u64, newest: u64) -> bool {
        run.covers(TlbGen::from_raw(since), TlbGen::from_raw(newest))
    }

    #[test]
    fn a_run_is_what_comes_one_after_the_other() {
        let run = TagRun::new();
        assert!(!covers(&run, 0, 1));
        for change in [3, 4, 5] {
            run.add(TlbGen::from_raw(change));
        }
        assert!(covers(&run, 2, 5) && covers(&run, 3, 4));
        assert!(!covers(&run, 1, 5) && !covers(&run, 2, 6));
        // Late, and after a gap.
        run.add(TlbGen::from_raw(2));
        assert!(covers(&run, 2, 5) && !covers(&run, 1, 5));
        run.add(TlbGen::from_raw(9));
        assert!(covers(&run, 8, 9) && !covers(&run, 2, 5) && !covers(&run, 7, 9));
    }

    #[test]
    fn a_run_has_a_longest_length() {
        let run = TagRun::new();
        let end = TagRun::LONGEST + 3;
        (1..=end).for_each(|change| run.add(TlbGen::from_raw(change)));
        assert!(covers(&run, 3, end) && !covers(&run, 2, end));
    }
}
