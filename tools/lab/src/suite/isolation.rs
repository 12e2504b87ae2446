//! Checks of a kernel that hides itself from user mode: that nothing else of it is mapped there than entries need, and that programs do as well as ever.
//!
//! `lab test --isolation` makes all other checks on such kernels, too.

use super::coherence;
use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cargo::{self, Flavour};
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished, Kernel};

/// What is run beside the self-test: switches of spaces, signals, every way into the kernel with NMIs on the way, and guests.
const BESIDE: [&str; 5] = ["hello", "t_fork", "t_signals", "t_entry", "t_kvm_run"];
const TORTURE_SECONDS: u32 = 3;

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    if test.fast {
        return tally.skip("isolation: programs", "left out by --fast");
    }
    let mut kernel = None;
    let name = "isolation: the kernel can be built with it";
    tally.check(name, || {
        kernel = Some(cargo::build_kernel(Flavour::IsolatedBreakable)?);
        Ok(String::new())
    });
    let Some(kernel) = kernel.map(Kernel::Shootdown) else {
        return;
    };
    for cpus in [2, 4] {
        for program in BESIDE {
            let label = format!("isolation: {program} on {cpus} CPUs");
            tally.check(&label, || beside(fleet, &kernel, program, "", cpus));
        }
        let arguments = format!(
            "--seconds={TORTURE_SECONDS} --threads={cpus} --windows --policies=before,best"
        );
        let label = format!("isolation: tlbtorture on {cpus} CPUs");
        tally.check(&label, || {
            beside(fleet, &kernel, "tlbtorture", &arguments, cpus)
        });
    }
    tally.check("isolation: one page more is noticed", || {
        let finished = boot(fleet, &kernel, "isolation-more", ("hello", ""), 2)?;
        match &finished.end {
            End::Panicked(line) if line.contains("would show user mode the kernel's page") => {
                Ok(String::new())
            }
            _ => Err(finished.unexpected("a panic: a page of the kernel")),
        }
    });
}

fn boot(
    fleet: &Fleet,
    kernel: &Kernel,
    selftest: &str,
    (program, arguments): (&str, &str),
    cpus: usize,
) -> Outcome<Finished> {
    let options = format!("selftest={selftest}");
    let mut start = Start::lasting(2 * TORTURE_SECONDS, cpus);
    (start.options, start.arguments) = (&options, arguments);
    fleet.boot(kernel, program, start)
}

/// Passes if the program does well, and the kernel has looked at what that sees.
fn beside(
    fleet: &Fleet,
    kernel: &Kernel,
    program: &str,
    arguments: &str,
    cpus: usize,
) -> Outcome<String> {
    let finished = boot(fleet, kernel, "isolation", (program, arguments), cpus)?;
    if program == "tlbtorture" {
        coherence::clean(&finished)?;
    }
    let finished = finished.expect_success(program)?;
    let said = finished.console.split_once("selftest: isolation passed: ");
    let said = said.and_then(|(_, behind)| behind.lines().next());
    said.map(str::to_owned)
        .ok_or_else(|| Failure::work(format!("no word of isolation; {}", finished.account())))
}
