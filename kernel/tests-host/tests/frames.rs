//! Frames while somebody else has the cache of the CPU: nothing is lost.

mod support;

use shootdown_kernel_tests::mm::frames;
use std::thread;
use support::Turn;

/// More than a cache keeps.
const TAKEN: usize = 40;
const TURNS: usize = 10_000;
/// More than processors: some are stopped while they have the cache.
const THREADS: usize = 8;

#[test]
fn frames_stay_while_others_have_the_cache() {
    let _turn = Turn::new();
    // All play the same CPU, as threads do that have moved since they asked for its number.
    let work = || {
        for _ in 0..TURNS {
            let taken: Vec<_> = (0..TAKEN).map_while(|_| frames::alloc()).collect();
            assert_eq!(taken.len(), TAKEN);
            taken.into_iter().for_each(frames::free);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
}
