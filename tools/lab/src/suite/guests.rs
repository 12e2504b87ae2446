//! Checks of the kernel as a guest of itself, on more virtual CPUs than CPUs: what it shoots down there, and what would be noticed.

use std::time::Duration;

use super::coherence::clean;
use super::fleet::Fleet;
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{Finished, Nested};

/// CPUs of the host.
const CPUS: usize = 2;
/// Virtual CPUs of its guests.
const VCPUS: [usize; 3] = [1, 2, 4];
/// How long a guest may take on a busy host.
const DEADLINE: Duration = Duration::from_secs(90);
/// A guest that waits for ever is known to after so long.
const HANG_DEADLINE: Duration = Duration::from_secs(20);
/// The guest says after so many milliseconds that a CPU does not answer.
const STALL: &str = "stall_ms=2000";

/// Programs that check themselves, with `%` for the number of CPUs.
const MADVISE: (&str, &str) = (
    "madvise",
    "--pages=1,32 --threads=% --slice-ms=50 --rounds=1 --warmup-ms=5 --self-check",
);
const TORTURE: (&str, &str) = (
    "tlbtorture",
    "--seconds=4 --threads=% --policies=before,best",
);

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let machines = if test.fast { &VCPUS[2..] } else { &VCPUS[..] };
    for &vcpus in machines {
        let name = format!("guests: hello on {vcpus} virtual CPUs");
        tally.check(&name, || {
            let finished = boot(fleet, ("hello", ""), vcpus)?;
            finished.expect_success("hello").map(|_| String::new())
        });
        for program in [MADVISE, TORTURE] {
            let name = format!("guests: {} on {vcpus} virtual CPUs", program.0);
            tally.check(&name, || clean(&boot(fleet, program, vcpus)?));
        }
    }
    tally.check("guests: a lost interrupt is noticed", || lost(fleet));
}

fn boot(fleet: &Fleet, (program, arguments): (&str, &str), vcpus: usize) -> Outcome<Finished> {
    let nested = Nested {
        vcpus,
        options: "",
        vmm: "",
        program: (program, fleet.image(program)?),
        arguments: &arguments.replace('%', &vcpus.to_string()),
        deadline: DEADLINE,
    };
    fleet.boot_nested((&fleet.kernel, ""), &nested, CPUS)
}

/// Passes if the guest says that a CPU does not answer. It may go on: the next interrupt for that CPU serves what waits.
fn lost(fleet: &Fleet) -> Outcome<String> {
    let (program, arguments) = TORTURE;
    let nested = Nested {
        vcpus: 4,
        options: STALL,
        vmm: "--drop-ipis=20",
        program: (program, fleet.image(program)?),
        arguments: &arguments.replace('%', "4"),
        deadline: HANG_DEADLINE,
    };
    let finished = fleet.boot_nested((&fleet.kernel, ""), &nested, CPUS)?;
    let mut lines = finished.console.lines();
    match lines.find(|line| line.starts_with("stall: ")) {
        Some(line) => Ok(line.trim().to_owned()),
        None => Err(Failure::work(format!(
            "a lost interrupt went unnoticed: {}",
            finished.account()
        ))),
    }
}
