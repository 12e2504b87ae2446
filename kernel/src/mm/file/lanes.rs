//! [`Lanes`]: syncs of one file that run at the same time.
//!
//! Each stores the pages that it has found dirty. A page that another one has just taken down as clean is not among them, but
//! must be stored as well before the call returns. So whoever is done waits for those that were running when
//! it took its pages; it has left its own lane by then, so nobody waits for somebody who waits.

use crate::sync::{SleepMutex, SleepMutexGuard};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// Syncs of one file at a time; more take turns.
const LANES: usize = 8;

/// Who syncs a file now.
#[derive(Debug)]
pub(super) struct Lanes([Lane; LANES]);

#[derive(Debug)]
struct Lane {
    /// Odd while a sync runs in it.
    turn: AtomicU64,
    /// The last turn whose pages could not all be stored.
    failed: AtomicU64,
    /// Room for the numbers of dirty pages.
    pages: SleepMutex<Vec<u32>>,
}

/// A running sync. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Running<'a> {
    lane: &'a Lane,
    /// The numbers of its pages.
    pub pages: SleepMutexGuard<'a, Vec<u32>>,
}

/// The turns of all lanes at one moment.
pub(super) struct Turns([u64; LANES]);

impl Lanes {
    /// Nobody syncs.
    pub const fn new() -> Self {
        Self(
            [const {
                Lane {
                    turn: AtomicU64::new(0),
                    failed: AtomicU64::new(0),
                    pages: SleepMutex::new(Vec::new()),
                }
            }; LANES],
        )
    }

    /// Begins a sync; sleeps while there are too many.
    pub fn enter(&self) -> Running<'_> {
        let free = self
            .0
            .iter()
            .find_map(|lane| Some((lane, lane.pages.try_lock()?)));
        // Else all queue for one: whoever is woken is not to look for others.
        let (lane, pages) = free.unwrap_or_else(|| (&self.0[0], self.0[0].pages.lock()));
        lane.turn.fetch_add(1, Ordering::Relaxed);
        Running { lane, pages }
    }

    /// Whether nobody syncs. Under the lock of the contents: whoever has taken pages under it before has stored them then.
    pub fn is_idle(&self) -> bool {
        // ORDERING: pairs with the release in `drop`.
        let turns = self.0.iter().map(|lane| lane.turn.load(Ordering::Acquire));
        turns.into_iter().all(|turn| turn.is_multiple_of(2))
    }

    /// Who syncs. Whoever has taken pages, under the lock of the contents, before the caller did is among them, or has ended.
    pub fn turns(&self) -> Turns {
        Turns(core::array::from_fn(|lane| {
            self.0[lane].turn.load(Ordering::Relaxed)
        }))
    }

    /// Waits for those that ran at that moment. Whether all of them could store their pages.
    pub fn wait_for(&self, turns: &Turns) -> bool {
        let mut is_well = true;
        for (lane, &turn) in self.0.iter().zip(&turns.0) {
            if turn.is_multiple_of(2) {
                continue;
            }
            // ORDERING: what the sync stored happened before; pairs with the release in `drop`.
            if lane.turn.load(Ordering::Acquire) == turn {
                drop(lane.pages.lock());
            }
            is_well &= lane.failed.load(Ordering::Relaxed) < turn;
        }
        is_well
    }
}

impl Running<'_> {
    /// Some of its pages could not be stored.
    pub fn fail(&self) {
        let turn = self.lane.turn.load(Ordering::Relaxed);
        self.lane.failed.store(turn, Ordering::Relaxed);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // ORDERING: publishes what was stored, and whether it failed; pairs with the load in `wait_for`.
        self.lane.turn.fetch_add(1, Ordering::Release);
    }
}
