//! `lab torture`: everything that the engine offers at once, at random and checked, on a machine of your choice.
//!
//! The mix and its checks are `shootdown-torture`; this starts a machine that runs it, listens, ends it when it hangs, and
//! says what came of it. docs/verification.md says what is checked.

mod hearing;
mod hosted;
mod patience;
mod qemu;
mod sim;
mod table;

use std::process::ExitCode;

use crate::cli::{CpuMachine, Torture};
use crate::failure::{Failure, Outcome};
use crate::machine;
use crate::session;
use hearing::Hearing;

/// A machine that has ended.
#[derive(Debug)]
struct Ended {
    /// What it said.
    hearing: Hearing,
    /// Why its word is not good enough, with evidence; none if it ended as it should.
    trouble: Option<String>,
}

/// Tortures one machine. Exit code 1 if a promise was broken, or somebody hung, or the machine died.
///
/// # Errors
/// The machine cannot be built or started.
pub fn command(arguments: &Torture) -> Outcome<ExitCode> {
    if arguments.seconds == 0 {
        return Err(Failure::input(
            "0 s are no time for a torture",
            "--seconds takes 1 or more",
        ));
    }
    let machine = settle(arguments)?;
    let ended = match machine {
        CpuMachine::Qemu => qemu::run(arguments)?,
        CpuMachine::Hosted => hosted::run(arguments)?,
        CpuMachine::Sim => return sim::run(arguments),
    };
    Ok(conclude(&ended))
}

/// The machine that was asked for; without one the emulator, where there is one.
fn settle(arguments: &Torture) -> Outcome<CpuMachine> {
    let machine = match arguments.machine {
        Some(machine) => machine,
        None if arguments.sanitizer.is_some() => CpuMachine::Hosted,
        None => {
            let qemu = machine::find_qemu(session::qemu_name(&arguments.emulator).as_deref())?;
            let (machine, why) = match qemu {
                Some(_) => (CpuMachine::Qemu, "QEMU is here"),
                None => (CpuMachine::Hosted, "there is no QEMU here"),
            };
            if machine == CpuMachine::Qemu {
                // A mistake is told alone.
                session::cpus(arguments.cpus)?;
            }
            eprintln!(
                "lab: on {}, because {why}; --machine names another",
                machine.name()
            );
            machine
        }
    };
    if arguments.sanitizer.is_some() && machine != CpuMachine::Hosted {
        return Err(Failure::input(
            format!("no sanitizer on {}", machine.name()),
            "use it with --machine hosted",
        ));
    }
    Ok(machine)
}

/// Prints the tables and, on the last line, the verdict.
fn conclude(ended: &Ended) -> ExitCode {
    let Ended { hearing, trouble } = ended;
    if let Some(verdict) = hearing.verdict {
        println!("{}", table::render(hearing));
        println!(
            "{} steps in {:.1} s, {:.0} steps/s, seed {}",
            verdict.steps,
            verdict.seconds(),
            verdict.steps as f64 / verdict.seconds().max(1e-9),
            verdict.seed
        );
    }
    let what = match (trouble, hearing.verdict) {
        (Some(trouble), _) => trouble.clone(),
        (None, None) => "the machine ended without a verdict".to_owned(),
        (None, Some(verdict)) if verdict.violations > 0 => {
            let first = hearing.first.as_deref().unwrap_or("none was named");
            format!("{} violations; the first: {first}", verdict.violations)
        }
        (None, Some(_)) => {
            println!("ok: no violation");
            return ExitCode::SUCCESS;
        }
    };
    println!("failed: {what}");
    ExitCode::FAILURE
}
