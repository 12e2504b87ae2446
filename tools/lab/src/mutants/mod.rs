//! `lab mutants`: breaks the code on purpose, one small edit at a time, and expects the checks to notice.
//!
//! A mutant is a file in `verify/mutants` (see the README there). The edits are made in a copy of the
//! workspace below `.lab/mutants`, never in the checkout.

mod booted;
mod catalogue;
mod check;
mod scratch;
mod verdict;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cli::Mutants;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use verdict::Tally;

pub use catalogue::{Mutant, read_all, read_files};
pub use check::{Check, Effort};
pub use scratch::{Copy, Edit, Scratch};
pub use verdict::Verdict;

/// How much longer than on the unchanged tree a check may take before it counts as hanging.
const PATIENCE: u32 = 10;
/// Added to that, for hosts that do other things besides.
const GRACE: Duration = Duration::from_secs(30);

/// How long each check took on the unchanged tree.
type Baseline = BTreeMap<Check, Duration>;

/// Runs the mutants that were named, or all. Exit code 1 if one survives or no longer applies.
///
/// # Errors
/// A name is unknown, a description cannot be read, or the unchanged tree fails a check.
pub fn command(arguments: &Mutants) -> Outcome<ExitCode> {
    let mutants = catalogue::select(read_all()?, &arguments.ids)?;
    let options = Options {
        effort: Effort {
            runs: arguments.runs,
            seed: arguments.seed,
        },
        jobs: arguments.jobs as usize,
        keep: arguments.keep,
    };
    let mut tally = Tally::new();
    run(&mutants, options, &mut |mutant, verdict, took| {
        tally.add(mutant, verdict, took);
    })?;
    Ok(tally.close())
}

/// How mutants are tried.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How much fuzzing each gets.
    pub effort: Effort,
    /// How many are tried at once, each in a copy of its own.
    pub jobs: usize,
    /// Whether the copies and their builds stay.
    pub keep: bool,
}

/// Tries each mutant and reports its verdict.
///
/// # Errors
/// There can be no verdict at all: the unchanged tree fails a check, or no copy can be made.
pub fn run(
    mutants: &[Mutant],
    options: Options,
    report: &mut (dyn FnMut(&Mutant, &Verdict, Duration) + Send),
) -> Outcome<()> {
    let mut progress = Progress::new();
    let scratch = Scratch::open()?;
    let copies = 0..options.jobs.clamp(1, mutants.len().max(1));
    let copies = copies.map(|number| scratch.copy(number));
    let copies = copies.collect::<Outcome<Vec<Copy>>>()?;
    let baseline = pass_unchanged(&copies[0], mutants, options.effort, &mut progress)?;
    let next = AtomicUsize::new(0);
    let show = Mutex::new((progress, report));
    std::thread::scope(|scope| {
        for copy in &copies {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = Instant::now();
                    let verdict = try_one(copy, mutant, options.effort, &baseline);
                    let mut show = show.lock().unwrap_or_else(PoisonError::into_inner);
                    (show.1)(mutant, &verdict, started.elapsed());
                    let done = next.load(Ordering::Relaxed).min(mutants.len());
                    show.0.step(done as u64, mutants.len() as u64, &mutant.id);
                }
            });
        }
    });
    if options.keep {
        println!("kept {}", scratch.path.display());
        return Ok(());
    }
    scratch.remove()
}

/// A check that fails anyway proves nothing about a mutant.
fn pass_unchanged(
    copy: &Copy,
    mutants: &[Mutant],
    effort: Effort,
    progress: &mut Progress,
) -> Outcome<Baseline> {
    let mut baseline = Baseline::new();
    for check in mutants.iter().flat_map(|mutant| &mutant.killers) {
        if baseline.contains_key(check) {
            continue;
        }
        progress.stage(&format!("unchanged tree: {check}"));
        let built = check.build(copy)?.map_err(|errors| {
            Failure::work(format!("the unchanged tree does not build\n{errors}"))
        })?;
        let started = Instant::now();
        match built.run(effort, check::LONGEST)? {
            None => baseline.insert(check.clone(), started.elapsed()),
            Some(evidence) => {
                return Err(Failure::work(format!(
                    "the unchanged tree fails {check}, so no mutant can be judged: {evidence}"
                )));
            }
        };
    }
    Ok(baseline)
}

/// Edits the copy, tries its killers in their order, and restores the copy.
fn try_one(copy: &Copy, mutant: &Mutant, effort: Effort, baseline: &Baseline) -> Verdict {
    let verdict = copy.with_edits(&mutant.edits, || {
        for check in &mutant.killers {
            let built = check
                .build(copy)?
                .map_err(|errors| Failure::work(format!("it does not build\n{errors}")))?;
            let deadline = baseline[check] * PATIENCE + GRACE;
            if let Some(evidence) = built.run(effort, deadline)? {
                return Ok(Verdict::Killed {
                    by: check.to_string(),
                    evidence,
                });
            }
        }
        Ok(Verdict::Survived)
    });
    verdict.unwrap_or_else(|failure| Verdict::Broken(failure.to_string()))
}
