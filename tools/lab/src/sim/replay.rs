//! `lab sim replay`: one run again, exactly as it was.

use std::process::ExitCode;

use shootdown_sim::fuzz::{Case, run, run_with_story};

use crate::cli::SimReplay;

/// Runs the case and reports; the last line is the verdict.
pub fn command(arguments: &SimReplay) -> ExitCode {
    let case = Case {
        operations: arguments.operations,
        schedule: arguments.schedule.clone(),
        scenario: arguments.scenario,
        ..Case::new(usize::from(arguments.cpus), arguments.seed)
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
    println!("schedule: {}", report.schedule);
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
