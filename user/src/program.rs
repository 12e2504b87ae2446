//! What every program does around its own work: prepare, read the command line, hand over, drain.

use std::io;
use std::process::ExitCode;

use crate::args::UsageError;
use crate::{machine, report};

/// Runs a program that is called `name`: what it makes of its command line (`None` for `--help`, which prints
/// `help`), what it sets up from that, and what it does then.
pub fn run<Options, Run>(
    name: &str,
    help: &str,
    parsed: Result<Option<Options>, UsageError>,
    set_up: impl FnOnce(Options) -> Result<Run, UsageError>,
    work: impl FnOnce(Run) -> ExitCode,
) -> ExitCode {
    machine::prepare();
    let code = match parsed.map(|options| options.map(set_up)) {
        Ok(None) => {
            report::say(help.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Some(Ok(run))) => work(run),
        Ok(Some(Err(error))) | Err(error) => error.report(name),
    };
    report::drain();
    code
}

/// What a measuring program says at its end: how many reads saw what they must not, or the call that failed.
pub fn verdict(program: &str, stale: io::Result<u64>) -> ExitCode {
    match stale {
        Ok(0) => ExitCode::SUCCESS,
        Ok(stale) => {
            eprintln!("{program}: {stale} reads saw what they must not");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
