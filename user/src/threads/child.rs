//! The process of a turn: forked by one that never has a second thread, so that it is decided anew whether its space is tracked.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::operation::{Job, Operation};
use crate::child::{Child, End};
use crate::course::crew::Crew;
use crate::course::{Sample, Slice, Turn};
use crate::region::{PAGE_WORDS, Region};

/// Has a child do the turn, with a thread on each of these CPUs; `around` is called here, while they work.
pub fn run(
    (operation, pages): (Operation, usize),
    cpus: &[usize],
    turn: Turn<'_>,
    around: &mut dyn FnMut(),
) -> io::Result<Slice> {
    // The child's figures, and in the pages behind them its samples.
    let told = Region::shared(1 + turn.samples.len().div_ceil(PAGE_WORDS))?;
    let (mut news, tell) = io::pipe()?;
    let (answers, mut answer) = io::pipe()?;
    let child = Child::start(|| {
        // Written, and so its own copy, before anything is measured.
        turn.samples.fill(Sample { whole: 1, call: 1 });
        let turn = Turn {
            samples: &mut *turn.samples,
            ..turn
        };
        let lived = Job::new(operation, cpus.len(), pages)
            .and_then(|job| live(&job, &cpus[1..], turn, &told, (tell, answers)));
        lived.map_or_else(
            |error| {
                eprintln!("threads: {error}");
                1
            },
            |()| 0,
        )
    })?;
    for _ in 0..2 {
        news.read_exact(&mut [0])?;
        around();
        answer.write_all(&[0])?;
    }
    if child.wait()? != End::Exited(0) {
        return Err(io::Error::other("the process of a turn failed"));
    }
    let figure = |index| told.word(0, index).load(Relaxed);
    let slice = Slice {
        samples: figure(0) as usize,
        operations: figure(1),
        ticks: figure(2),
        wrong: figure(3),
    };
    for (index, sample) in turn.samples[..slice.samples].iter_mut().enumerate() {
        *sample = Sample::of(sample_word(&told, index).load(Relaxed));
    }
    Ok(slice)
}

fn live(
    job: &Job,
    others: &[usize],
    turn: Turn<'_>,
    told: &Region,
    (mut tell, mut answers): (PipeWriter, PipeReader),
) -> io::Result<()> {
    let mut met = Ok(());
    let mut meet = || {
        tell.write_all(&[0])
            .and_then(|()| answers.read_exact(&mut [0]))
    };
    let crew = Crew {
        work: job,
        cpus: others,
    };
    let work = Turn {
        samples: &mut *turn.samples,
        ..turn
    };
    let slice = crew.run(work, &mut || met = meet())?;
    met?;
    let figures = [
        slice.samples as u64,
        slice.operations,
        slice.ticks,
        job.wrong(),
    ];
    for (index, figure) in figures.into_iter().enumerate() {
        told.word(0, index).store(figure, Relaxed);
    }
    for (index, sample) in turn.samples[..slice.samples].iter().enumerate() {
        sample_word(told, index).store(sample.whole.into(), Relaxed);
    }
    Ok(())
}

fn sample_word(told: &Region, index: usize) -> &AtomicU64 {
    told.word(1 + index / PAGE_WORDS, index % PAGE_WORDS)
}
