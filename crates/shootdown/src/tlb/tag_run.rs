//! [`TagRun`]: the latest changes of a space, one after the other, that an instruction has dropped under its [global tag](crate::remote::GlobalTags) on every
//! CPU: what a CPU finds under the tag when it comes back may be used if they are all that it has missed.

use crate::sync::{AtomicU64, Ordering, const_fn};
use crate::tlb::TlbGen;

/// The latest run of a space's changes that no CPU needs to be told of.
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
        let add = |change| run.add(TlbGen::from_raw(change));
        [3, 4, 5].into_iter().for_each(add);
        assert!(covers(&run, 2, 5) && covers(&run, 4, 5) && covers(&run, 2, 4));
        assert!(!covers(&run, 1, 5) && !covers(&run, 2, 6));
        // Late, and after a gap.
        add(2);
        assert!(covers(&run, 2, 5));
        add(9);
        assert!(covers(&run, 8, 9) && !covers(&run, 5, 9));
    }

    #[test]
    fn a_run_has_a_longest_length() {
        let (run, end) = (TagRun::new(), TagRun::LONGEST + 3);
        (1..=end).for_each(|change| run.add(TlbGen::from_raw(change)));
        assert!(covers(&run, 3, end) && !covers(&run, 2, end));
    }
}
