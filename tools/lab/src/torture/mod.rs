//! `lab torture`: everything that the engine offers at once, at random and checked, on a machine of your choice.
//!
//! The mix and its checks are `shootdown-torture`; this starts a machine that runs it, listens, ends it when it hangs, and
//! says what came of it. docs/verification/torture.md says what is checked.

mod hearing;
mod hosted;
mod patience;
mod port;
mod qemu;
mod sim;

use std::process::ExitCode;

use crate::bench::grid;
use crate::cli::{CpuMachine, Torture};
use crate::failure::{Failure, Outcome};
use crate::machine;
use crate::session;
use hearing::{Counted, Hearing};

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
    if let Some(arch) = &arguments.arch {
        return Ok(conclude(&port::run(arch, arguments)?));
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
                // A mistake is told alone.
                Some(_) => {
                    session::cpus(arguments.cpus).map(|_| (CpuMachine::Qemu, "QEMU is here"))?
                }
                None => (CpuMachine::Hosted, "there is no QEMU here"),
            };
            let name = machine.name();
            eprintln!("lab: on {name}, because {why}; --machine names another");
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
        println!("{}", tables(hearing));
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

/// What was done, what was checked, and what the engine counted, side by side.
fn tables(hearing: &Hearing) -> String {
    let seconds = hearing.verdict.map_or(0.0, |verdict| verdict.seconds());
    let is_name = |index| index == 0;
    let rate = |count: u64| format!("{:.0}", count as f64 / seconds.max(1e-9));
    let rated = |heading: [&str; 2], counted: &Counted| {
        let row =
            |(name, count): &(String, u64)| vec![name.clone(), count.to_string(), rate(*count)];
        let heading = [heading[0], heading[1], "per second"];
        grid(heading, counted.iter().map(row).collect(), is_name)
    };
    let promise = |(name, count): &(String, u64)| vec![name.clone(), count.to_string()];
    let promises = hearing.promises.iter().map(promise);
    format!(
        "{}\n{}\n{}",
        rated(["operation", "done"], &hearing.operations),
        rated(["engine", "count"], &hearing.engine),
        grid(["promise", "broken"], promises.collect(), is_name),
    )
}
