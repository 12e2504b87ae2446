//! What every program does around its own work: prepare, read the command line, hand over, drain.

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
