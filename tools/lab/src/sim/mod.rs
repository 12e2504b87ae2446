//! `lab sim`: the engine on the simulated machine, against an adversarial TLB and under weak memory.
//!
//! docs/verification.md says what is simulated and how failures are read.

mod fuzz;
mod replay;

use std::process::ExitCode;

use crate::cli::Sim;
use crate::failure::Outcome;

pub use fuzz::campaign;

/// Runs one of the subcommands. Exit code 1 if the engine broke a promise.
///
/// # Errors
/// Never so far; bad input is refused before.
pub fn command(arguments: &Sim) -> Outcome<ExitCode> {
    Ok(match arguments {
        Sim::Fuzz(arguments) => fuzz::command(arguments),
        Sim::Replay(arguments) => replay::command(arguments),
    })
}
