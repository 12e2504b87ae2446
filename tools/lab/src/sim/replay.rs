//! `lab sim replay`: one run again, exactly as it was.

use std::process::ExitCode;

use shootdown_sim::fuzz::{Case, run, run_with_story};

use crate::cli::SimReplay;

/// A longer schedule is of no use to a reader, and the seed says the same.
const MOST_SHOWN: usize = 2_000;

/// Runs the case and reports; the last line is the verdict.
pub fn command(arguments: &SimReplay) -> ExitCode {
    let cpus = usize::from(arguments.cpus);
    let usual = Case::new(cpus, arguments.seed);
    let case = Case {
        operations: arguments.operations.unwrap_or(usual.operations),
        schedule: arguments.schedule.clone(),
        scenario: arguments.scenario,
        ..usual
    };
    if let Err(message) = case.check() {
        eprintln!("lab: {message}");
        return ExitCode::from(2);
    }
    let report = if arguments.story {
        run_with_story(&case)
    } else {
        run(&case)
    };
    for line in &report.story {
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
    match report.failure {
        None => {
            println!("ok: nothing went wrong");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("failed: {failure}");
            ExitCode::FAILURE
        }
    }
}
