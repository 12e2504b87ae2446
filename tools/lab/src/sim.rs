//! `lab sim`: the engine on the simulated machine, against an adversarial TLB and under weak memory.
//!
//! docs/verification/simulator.md says what is simulated, fuzzing.md beside it how failures are read.

use std::path::Path;
use std::process::ExitCode;

use shootdown_sim::fuzz::{
    Campaign, CampaignReport, Case, Report, run, run_to_walk, run_with_story, shrink,
};
use shootdown_sim::walkthrough::page;

use crate::bench::grid;
use crate::bench::report::{probe, unwritable};
use crate::cli::{Sim, SimFuzz, SimReplay};
use crate::failure::Outcome;
use crate::progress::Progress;

/// A longer schedule is of no use to a reader, and the seed says the same.
const MOST_SHOWN: usize = 2_000;

/// Runs one of the subcommands. Exit code 1 if the engine broke a promise.
///
/// # Errors
/// The options make no sense, or a file cannot be written (exit code 2).
pub fn command(arguments: &Sim) -> Outcome<ExitCode> {
    match arguments {
        Sim::Fuzz(arguments) => Ok(fuzz(arguments)),
        Sim::Replay(arguments) => replay(arguments),
    }
}

/// Fuzzes and reports; the last line is the verdict.
fn fuzz(arguments: &SimFuzz) -> ExitCode {
    let mut plan = Campaign {
        runs: arguments.runs,
        seed: arguments.seed,
        cpus: arguments.cpus.map(usize::from),
        guests: arguments.guests,
        tracked: arguments.tracked,
        scenario: arguments.scenario,
        ..Campaign::default()
    };
    if let Some(threads) = arguments.threads {
        plan.threads = threads.into();
    }
    let report = campaign(plan);
    let Some((case, failed)) = &report.failure else {
        println!("{}", rate(&report));
        let sightings = &report.progress.totals.sightings;
        println!("{}", sightings.summary());
        if arguments.sightings {
            println!(
                "{}",
                grid(["situation", "times"], sightings.rows(), |index| index == 0)
            );
        }
        println!("ok: {} schedules", report.progress.runs);
        return ExitCode::SUCCESS;
    };
    println!("replay with    ./lab sim replay {case}");
    println!("or, shrunk,    ./lab sim replay {}", shrink(case, failed));
    println!("add --story to read it, --html FILE to walk through it");
    if let Some(failure) = &failed.failure {
        let schedules = case.seed.wrapping_sub(plan.seed) + 1;
        println!("failed after {schedules} schedules: {failure}");
    }
    ExitCode::FAILURE
}

/// Runs a campaign and shows how it gets on.
pub fn campaign(plan: Campaign) -> CampaignReport {
    let mut progress = Progress::new();
    shootdown_sim::fuzz::campaign(plan, |so_far| {
        let label = format!("{:.0} schedules/s", so_far.per_second(so_far.runs));
        progress.step(so_far.runs, plan.runs, &label);
    })
}

fn rate(report: &CampaignReport) -> String {
    let progress = &report.progress;
    let events = progress.totals.events;
    format!(
        "{events} events in {:.1} s: {:.0} schedules/s, {:.2} million events/s",
        progress.elapsed.as_secs_f64(),
        progress.per_second(progress.runs),
        progress.per_second(events) / 1e6
    )
}

/// Runs the case and reports; the last line is the verdict.
fn replay(arguments: &SimReplay) -> Outcome<ExitCode> {
    let cpus = usize::from(arguments.cpus);
    let usual = Case::with_guests(cpus, arguments.seed, arguments.guests);
    let case = Case {
        operations: arguments.operations.unwrap_or(usual.operations),
        schedule: arguments.schedule.clone(),
        tracked: arguments.tracked,
        scenario: arguments.scenario,
        ..usual
    };
    if let Err(message) = case.check() {
        eprintln!("lab: {message}");
        return Ok(ExitCode::from(2));
    }
    probe(arguments.html.as_deref(), "--html")?;
    let report = match &arguments.html {
        Some(path) => run_onto(path, &case)?,
        None if arguments.story => run_with_story(&case),
        None => run(&case),
    };
    for line in report.story.iter().filter(|_| arguments.story) {
        println!("{line}");
    }
    println!(
        "{} events, {} questions with more than one answer, {} unusual answers",
        report.events,
        report.questions,
        report.schedule.0.len()
    );
    if report.schedule.0.len() <= MOST_SHOWN {
        println!("schedule: {}", report.schedule);
    }
    if let Some(failure) = report.failure {
        println!("failed: {failure}");
        return Ok(ExitCode::FAILURE);
    }
    println!("ok: nothing went wrong");
    Ok(ExitCode::SUCCESS)
}

/// Runs the case and writes the page that walks through it.
fn run_onto(path: &Path, case: &Case) -> Outcome<Report> {
    let (report, walkthrough) = run_to_walk(case);
    if walkthrough.left_out > 0 {
        let kept = walkthrough.steps.len();
        println!(
            "a long run: the page has its last {kept} steps, {} are left out",
            walkthrough.left_out
        );
    }
    std::fs::write(path, page(&[walkthrough]))
        .map_err(|error| unwritable(path, &error, "--html"))?;
    println!("page to walk through: {}", path.display());
    Ok(report)
}
