//! A machine of another architecture, in its privileged mode, in an emulator of its own.

use super::Ended;
use super::hearing::Hearing;
use crate::cli::Torture;
use crate::client::{self, Run};
use crate::failure::Outcome;
use crate::machine::AccelChoice;
use crate::session;

/// Boots it and listens.
pub fn run(arch: &str, arguments: &Torture) -> Outcome<Ended> {
    let client = client::port(arch)?;
    let cpus = session::cpus(arguments.cpus)?;
    let image = client.build(cpus)?;
    let run = Run {
        pc: None,
        accel: AccelChoice::Tcg,
        cpus,
        seconds: arguments.seconds,
    };
    let mut hearing = Hearing::default();
    let seed = format!("seed={}", arguments.seed);
    let ended = client.boot(&image, run, &seed, &mut |line| {
        hearing.listen(line);
    });
    let trouble = match ended {
        // Violations are told by the verdict.
        Err(failure) if hearing.verdict.is_none_or(|it| it.violations == 0) => {
            Some(failure.to_string())
        }
        _ => None,
    };
    Ok(Ended { hearing, trouble })
}
