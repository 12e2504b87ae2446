//! loom model of the run of changes that were dropped everywhere.

extern crate std;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use super::TagRun;
use crate::tlb::TlbGen;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

fn covers(run: &TagRun, since: u64, newest: u64) -> bool {
    run.covers(TlbGen::from_raw(since), TlbGen::from_raw(newest))
}

/// Each change that the run covers has been flushed, as this CPU sees it.
fn look(run: &TagRun, flushed: &[AtomicU64; 2]) {
    for (since, newest) in [(5, 6), (4, 5), (4, 6)] {
        if covers(run, since, newest) {
            for generation in since + 1..=newest {
                let flushed = &flushed[generation as usize - 5];
                assert_eq!(flushed.load(Ordering::Relaxed), 1, "{generation}");
            }
        }
    }
}

/// Two initiators finish two changes in any order: a run holds what has been flushed, and nothing else.
#[test]
fn a_run_comes_after_the_flushes_in_it() {
    check(|| {
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
        assert!(covers(run, 5, 6));
    });
}
