//! The simulated machine.

use std::process::ExitCode;

use crate::cli::Torture;
use crate::failure::{Failure, Outcome};

/// Says that it cannot be done yet.
pub fn run(_: &Torture) -> Outcome<ExitCode> {
    Err(Failure::input(
        "the simulated machine does not run the torture yet",
        "use --machine qemu or hosted; `./lab sim fuzz` explores schedules of its own",
    ))
}
