//! loom models of the notes of what CPUs have dropped.

extern crate std;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use super::{Changes, TakenNote, TakenRun};
use crate::tlb::{SpaceId, TlbGen};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

fn changes(since: u64, newest: u64) -> Changes {
    Changes {
        since: TlbGen::from_raw(since),
        newest: TlbGen::from_raw(newest),
    }
}

/// Two initiators write notes of two spaces; who reads one meanwhile finds one that somebody wrote, of the space that it asks for.
#[test]
fn a_note_is_read_whole_or_not_at_all() {
    check(|| {
        let note = Arc::new(TakenNote::new());
        let (one, other) = (SpaceId::from_raw(1), SpaceId::from_raw(2));
        note.write(one, changes(1, 2));
        let writers = [(one, changes(5, 6)), (other, changes(3, 4))].map(|(space, changes)| {
            let note = note.clone();
            loom::thread::spawn(move || note.write(space, changes))
        });
        loom::thread::yield_now();
        let found = note.read(one);
        assert!(
            [None, Some(changes(1, 2)), Some(changes(5, 6))].contains(&found),
            "{found:?}"
        );
        for writer in writers {
            writer.join().unwrap();
        }
        let ends = [note.read(one), note.read(other)];
        assert!(
            [[Some(changes(5, 6)), None], [None, Some(changes(3, 4))]].contains(&ends),
            "{ends:?}"
        );
    });
}

/// Two initiators write notes of the same space, with a gap between the changes: nobody takes the gap for a part of either.
#[test]
fn notes_that_are_apart_do_not_join() {
    check(|| {
        let note = Arc::new(TakenNote::new());
        let space = SpaceId::from_raw(1);
        note.write(space, changes(1, 2));
        let writers = [changes(8, 9), changes(2, 3)].map(|changes| {
            let note = note.clone();
            loom::thread::spawn(move || note.write(space, changes))
        });
        for writer in writers {
            writer.join().unwrap();
        }
        let end = note.read(space).unwrap();
        assert!([changes(8, 9), changes(1, 3)].contains(&end), "{end:?}");
    });
}

/// What a CPU reads of a note comes after what the back end did before it was written.
#[test]
fn a_note_comes_after_the_flush_that_it_is_about() {
    check(|| {
        let note = Arc::new(TakenNote::new());
        let flushed = Arc::new(AtomicU64::new(0));
        let space = SpaceId::from_raw(1);
        let back_end = {
            let (note, flushed) = (note.clone(), flushed.clone());
            loom::thread::spawn(move || {
                flushed.store(1, Ordering::Relaxed);
                note.write(space, changes(1, 2));
            })
        };
        loom::thread::yield_now();
        if note.read(space).is_some() {
            assert_eq!(flushed.load(Ordering::Relaxed), 1);
        }
        back_end.join().unwrap();
    });
}

/// Each change in the run before change 7, and each that the run covers, has been flushed, as this CPU sees it.
fn look(run: &TakenRun, flushed: &[AtomicU64; 2]) {
    let check = |found: Changes| {
        for generation in found.since.as_u64() + 1..=found.newest.as_u64() {
            let flushed = &flushed[generation as usize - 5];
            assert_eq!(flushed.load(Ordering::Relaxed), 1, "{generation}");
        }
    };
    let covered = [changes(5, 6), changes(4, 5), changes(4, 6)];
    let is_covered = |known: &Changes| run.covers(known.since, known.newest);
    covered.into_iter().filter(is_covered).for_each(check);
    if let Some(found) = run.before(TlbGen::from_raw(7)) {
        check(found);
    }
}

/// Two back ends finish two changes in any order: a run holds what has been flushed, and nothing else.
#[test]
fn a_run_comes_after_the_flushes_in_it() {
    check(|| {
        let run = Arc::new((TakenRun::new(), [(); 2].map(|()| AtomicU64::new(0))));
        let back_ends = [0, 1].map(|index: usize| {
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
        for back_end in back_ends {
            back_end.join().unwrap();
        }
        let end = run.before(TlbGen::from_raw(7));
        assert!(
            [Some(changes(4, 6)), Some(changes(5, 6))].contains(&end),
            "{end:?}"
        );
    });
}
