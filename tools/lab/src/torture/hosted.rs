//! Threads as CPUs on this host, in a process of their own: if it dies, the lab says how.

use std::cell::RefCell;
use std::process::Command;
use std::time::Duration;

use super::Ended;
use super::patience::Patience;
use crate::cargo;
use crate::cargo::Sanitizer;
use crate::cli::Torture;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;

/// As many CPUs as the program has room for.
const MOST_CPUS: i64 = 64;
/// A worker without a step for so long hangs; there may be many to a core.
const PATIENCE: Duration = Duration::from_secs(20);
/// The sanitizer makes everything slow.
const PATIENCE_SANITIZED: Duration = Duration::from_secs(60);
/// From the last step to the end.
const CLOSING_TIME: Duration = Duration::from_secs(60);
/// What the sanitizer is told: to end at the first report, with a status of its own.
const SANITIZER_OPTIONS: &str = "halt_on_error=1 exitcode=66";
/// How much of a report an error shows.
const REPORT_LINES: usize = 60;

/// Builds the program, runs it and listens.
pub fn run(arguments: &Torture) -> Outcome<Ended> {
    if !(1..=MOST_CPUS).contains(&arguments.cpus) {
        return Err(Failure::input(
            format!("{} CPUs on threads", arguments.cpus),
            format!("--cpus takes 1 to {MOST_CPUS} there"),
        ));
    }
    let program = cargo::build_torture(arguments.sanitizer)?;
    let mut command = Command::new(program);
    let (cpus, seed) = (arguments.cpus, arguments.seed);
    let words = format!(
        "--seconds {} --cpus {cpus} --seed {seed}",
        arguments.seconds
    );
    command.args(words.split(' '));
    command.env("TSAN_OPTIONS", SANITIZER_OPTIONS);
    let limit = match arguments.sanitizer {
        None => PATIENCE,
        Some(Sanitizer::Thread) => PATIENCE_SANITIZED,
    };
    let patience = RefCell::new(Patience::new(arguments.seconds.into(), limit));
    let deadline = Duration::from_secs(arguments.seconds.into()) + limit + CLOSING_TIME;
    let child = Child::run_until(
        &mut command,
        deadline,
        &mut |line| patience.borrow_mut().listen(line),
        &mut || patience.borrow_mut().is_over(),
    )
    .doing("start the hosted machine")?;
    let (hearing, hang) = patience.into_inner().conclude();
    let trouble = hang.or_else(|| trouble(&child));
    Ok(Ended { hearing, trouble })
}

/// Why the process did not end as it should. Its exit code 1 is the verdict's.
fn trouble(child: &Child) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    let how = match child.status {
        None => "it did not end in time".to_owned(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(0 | 1), _) => return None,
            (_, Some(signal)) => format!("it was ended by signal {signal}"),
            (Some(66), _) => "ThreadSanitizer reports".to_owned(),
            _ => format!("it ended with {status}"),
        },
    };
    let lines: Vec<&str> = child.errors.lines().take(REPORT_LINES).collect();
    Some(format!("{how}\n{}", lines.join("\n")).trim_end().to_owned())
}
