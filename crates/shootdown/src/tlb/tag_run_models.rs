//! A loom model of the run of changes that were dropped under a global tag.

extern crate std;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use super::TagRun;
use crate::tlb::TlbGen;

/// Each change that the run covers has been flushed, as this CPU sees it; returns whether it covers both.
fn look(run: &TagRun, flushed: &[AtomicU64; 2]) -> bool {
    let is_covered = |since, newest| {
        let covered = run.covers(TlbGen::from_raw(since), TlbGen::from_raw(newest));
        for generation in since + 1..=newest {
            let flushed = &flushed[generation as usize - 5];
            assert!(!covered || flushed.load(Ordering::Relaxed) == 1);
        }
        covered
    };
    is_covered(5, 6);
    is_covered(4, 5);
    is_covered(4, 6)
}

/// Two initiators have all CPUs drop two changes, in any order: a run holds what has been dropped, and nothing else.
#[test]
fn a_run_comes_after_the_flushes_in_it() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(|| {
        let run = Arc::new((TagRun::new(), [(); 2].map(|()| AtomicU64::new(0))));
        let initiators = [0, 1].map(|index: usize| {
            let run = run.clone();
            loom::thread::spawn(move || {
                let (run, flushed) = &*run;
                flushed[index].store(1, Ordering::Relaxed);
                run.add(TlbGen::from_raw(5 + index as u64));
                look(run, flushed);
            })
        });
        let (run, flushed) = &*run;
        loom::thread::yield_now();
        look(run, flushed);
        for initiator in initiators {
            initiator.join().unwrap();
        }
        look(run, flushed);
    });
}
