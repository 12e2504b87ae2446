//! The simulated machine: short runs, each under a schedule of its own, one after the other until the time is over.

use std::process::ExitCode;

use shootdown_sim::torture::{Campaign, Case, Operation, campaign};

use crate::cli::Torture;
use crate::failure::{Failure, Outcome};
use crate::progress;

/// Runs and reports; the last line is the verdict.
pub fn run(arguments: &Torture) -> Outcome<ExitCode> {
    let cpus = usize::try_from(arguments.cpus).ok();
    let cpus = cpus.filter(|cpus| (1..=Case::MOST_CPUS).contains(cpus));
    let cpus = cpus.ok_or_else(|| {
        Failure::input(
            format!("{} CPUs on the simulated machine", arguments.cpus),
            format!("--cpus takes 1 to {} there", Case::MOST_CPUS),
        )
    })?;
    let plan = Campaign {
        seed: arguments.seed,
        cpus: Some(cpus),
        ..Campaign::default()
    };
    let seconds = u64::from(arguments.seconds);
    let mut shown = progress::Progress::new();
    let report = campaign(plan, |so_far| {
        let label = format!("{:.0} steps/s", so_far.per_second(so_far.totals.steps));
        shown.step(so_far.elapsed.as_secs().min(seconds), seconds, &label);
        so_far.elapsed.as_secs() < seconds
    });
    let progress = &report.progress;
    let totals = &progress.totals;
    println!("{:<18} {:>14}", "operation", "done");
    for (operation, done) in Operation::ALL.iter().zip(&totals.done) {
        println!("{:<18} {done:>14}", operation.name());
    }
    println!(
        "{} steps and {} events in {} schedules, {:.1} s, {:.0} steps/s, seeds from {}",
        totals.steps,
        totals.events,
        progress.runs,
        progress.elapsed.as_secs_f64(),
        progress.per_second(totals.steps),
        arguments.seed
    );
    let Some((case, failed)) = &report.failure else {
        println!("ok: no violation");
        return Ok(ExitCode::SUCCESS);
    };
    println!("again with    ./lab torture --machine sim {case} --seconds 1");
    if let Some(failure) = &failed.failure {
        println!("failed: {failure}");
    }
    Ok(ExitCode::FAILURE)
}
