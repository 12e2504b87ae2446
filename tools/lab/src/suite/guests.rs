//! Checks of the kernel as a guest of itself, on more virtual CPUs than CPUs: what it shoots down there, by interrupts and by flushes before entry, and
//! what would be noticed.

use std::time::Duration;

use super::coherence::clean;
use super::fleet::Fleet;
use super::tally::Tally;
use crate::bench::Row;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished, Kernel, Nested};

/// CPUs of the host.
const CPUS: usize = 2;
/// Virtual CPUs of its guests.
const VCPUS: [usize; 3] = [1, 2, 4];
/// More virtual CPUs than CPUs.
const MOST: usize = 4;
/// How long a guest may take on a busy host.
const DEADLINE: Duration = Duration::from_secs(90);
/// How long one may that may stand still, and has said so before.
const SHORT: Duration = Duration::from_secs(25);
/// The guest says after so many milliseconds that a CPU does not answer.
const STALL: &str = "stall_ms=2000";
/// So that all flushes are interrupts.
const BY_INTERRUPTS: &str = "--pv-flush=off";
/// A mistake of the host that a program in the guest is to notice.
const MISTAKE: &str = "break=stays-preempted";
/// Timers of the host lose each 16th interrupt.
const LOSES_TICKS: &str = "break=tick-lost";
/// So many guests may come through a mistake of the host, or go down with it, before one says so.
const VICTIMS: usize = 5;

const LEFT_OUT: &str = "left out without --soak";

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
            let finished = boot(fleet, ("hello", ""), vcpus, "")?;
            finished.expect_success("hello").map(|_| String::new())
        });
        let name = format!("guests: tlbtorture on {vcpus} virtual CPUs");
        tally.check(&name, || clean(&boot(fleet, TORTURE, vcpus, "")?));
        let name = format!("guests: tlbtorture on {vcpus} virtual CPUs by interrupts");
        tally.check(&name, || {
            clean(&boot(fleet, TORTURE, vcpus, BY_INTERRUPTS)?)
        });
        let name = format!("guests: madvise on {vcpus} virtual CPUs");
        match vcpus == MOST || test.soak {
            true => tally.check(&name, || taken(fleet, vcpus, "")),
            false => tally.skip(&name, LEFT_OUT),
        }
    }
    tally.check("guests: madvise by interrupts", || {
        taken(fleet, MOST, BY_INTERRUPTS)
    });
    tally.check("guests: CPUs come and go", || {
        let finished = boot(fleet, ("t_hotplug", ""), MOST, "")?;
        finished.expect_success("t_hotplug").map(|_| String::new())
    });
    tally.check("guests: a lost interrupt is noticed", || lost(fleet));
    tally.check(
        "guests: ticks that the host's timers lose are made up for",
        || {
            let nested = nested(
                fleet,
                ("tlbtorture", "--seconds=4 --threads=4 --policies=best"),
                MOST,
                BY_INTERRUPTS,
            )?;
            clean(&fleet.boot_nested((&fleet.breakable, LOSES_TICKS), &nested, CPUS)?)
        },
    );
    tally.check("guests: a flush that the host forgets is noticed", || {
        forgotten(fleet)
    });
    let name = "linux: tlbtorture in the kernel as a guest of Linux's KVM";
    fleet.check_on_linux(tally, name, |linux| {
        clean(&boot_on(fleet, linux, TORTURE, (MOST, ""))?)
    });
    let name = "linux: madvise in the kernel as a guest of Linux's KVM";
    if !test.soak {
        return tally.skip(name, LEFT_OUT);
    }
    fleet.check_on_linux(tally, name, |linux| {
        let finished = boot_on(fleet, linux, MADVISE, (MOST, ""))?;
        spared(&finished, true)
    });
}

fn boot(fleet: &Fleet, program: (&str, &str), vcpus: usize, vmm: &str) -> Outcome<Finished> {
    boot_on(fleet, &fleet.kernel, program, (vcpus, vmm))
}

fn boot_on(
    fleet: &Fleet,
    host: &Kernel,
    (program, arguments): (&str, &str),
    (vcpus, vmm): (usize, &str),
) -> Outcome<Finished> {
    let arguments = arguments.replace('%', &vcpus.to_string());
    let nested = nested(fleet, (program, &arguments), vcpus, vmm)?;
    fleet.boot_nested((host, ""), &nested, CPUS)
}

fn nested<'a>(
    fleet: &'a Fleet,
    (program, arguments): (&'a str, &'a str),
    vcpus: usize,
    vmm: &'a str,
) -> Outcome<Nested<'a>> {
    Ok(Nested {
        vcpus,
        options: STALL,
        vmm,
        program: (program, fleet.image(program)?),
        arguments,
        deadline: DEADLINE,
    })
}

/// Passes if nothing is stale, and flushes spared virtual CPUs that did not run, if there are any and the host does that.
fn taken(fleet: &Fleet, vcpus: usize, vmm: &str) -> Outcome<String> {
    let finished = boot(fleet, MADVISE, vcpus, vmm)?;
    match vmm {
        BY_INTERRUPTS => spared(&finished, false),
        _ if vcpus > CPUS => spared(&finished, true),
        _ => clean(&finished),
    }
}

/// Passes if nothing is stale, and flushes have spared virtual CPUs, or none.
fn spared(finished: &Finished, any: bool) -> Outcome<String> {
    let account = clean(finished)?;
    let rows = Row::all_of(&finished.console)?;
    let taken: f64 = rows.iter().map(|row| row.counter("cpus_taken")).sum();
    match any == (taken > 0.0) {
        true => Ok(account),
        false => Err(Failure::work(format!(
            "flushes spared {taken:.2} virtual CPUs a row; {}",
            finished.account()
        ))),
    }
}

/// Passes if the guest says that a CPU does not answer. It may go on: the next interrupt for that CPU serves what waits, and so does what the CPU
/// itself does in the kernel, so that of many that get lost few are noticed, and at times none.
fn lost(fleet: &Fleet) -> Outcome<String> {
    let mut account = String::new();
    let arguments = TORTURE.1.replace('%', &MOST.to_string());
    let options = "--pv-flush=off --drop-ipis=2";
    let nested = Nested {
        deadline: SHORT,
        ..nested(fleet, (TORTURE.0, &arguments), MOST, options)?
    };
    for _ in 0..VICTIMS {
        let finished = fleet.boot_nested((&fleet.kernel, ""), &nested, CPUS)?;
        let mut lines = finished.console.lines();
        if let Some(line) = lines.find(|line| line.starts_with("stall: ")) {
            return Ok(line.trim().to_owned());
        }
        account = finished.account();
    }
    Err(Failure::work(format!(
        "lost interrupts went unnoticed: {account}"
    )))
}

/// Passes if the program in the guest saw a stale page and failed of that.
fn forgotten(fleet: &Fleet) -> Outcome<String> {
    let arguments = "--seconds=30 --threads=4 --policies=best";
    let nested = nested(fleet, ("tlbtorture", arguments), MOST, "")?;
    for _ in 0..VICTIMS {
        let finished = fleet.boot_nested((&fleet.breakable, MISTAKE), &nested, CPUS)?;
        let stale: u64 = Row::all_of(&finished.console)?
            .iter()
            .map(|row| row.count("stale"))
            .sum();
        match finished.end {
            End::Exited(1) if stale > 0 => return Ok(format!("{stale} stale")),
            // The pages that the host mistreats may be the program's own, or the guest's kernel's.
            End::Signalled(_) | End::Panicked(_) | End::Exited(124..) => {}
            _ => return Err(finished.unexpected("a stale access")),
        }
    }
    Err(Failure::work("each of the guests was brought down"))
}
