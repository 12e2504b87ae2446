//! Checks that no stale translation is ever used, and that they would notice if one were.

use std::time::Duration;

use serde_json::Value;

use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished, Kernel};
use crate::protocol::{self, Message};

const POLICIES: [&str; 3] = ["before", "published", "best"];
/// Has tlbtorture lend pages through windows, too.
pub(super) const WINDOWS: &str = "--windows";
/// A policy under which CPUs in the kernel are left alone.
const DEFERS: &str = "best+defer";
/// Steps that the breakable kernel leaves out, and the policy; tlbtorture has to notice each.
const BREAKS: [(&str, &str); 5] = [
    ("no-remote", "best"),
    ("no-wait", "best"),
    ("free-early", "best"),
    ("fork-local", "best"),
    ("stay-behind", DEFERS),
];
/// Programs that look for one mistake, which they have to notice, with their arguments: that is, a child sees what
/// its parent wrote after the fork, the stored copy of a file lacks a write, a server works on an earlier client's page, or a call
/// copies from a page that was discarded.
const NOTICED: [(&str, &[&str], &str); 6] = [
    ("t_fork", &[], "fork-local"),
    ("t_dirty", &["600"], "sync-local"),
    ("t_dirty", &["600"], "copy-early"),
    ("t_dirty", &["600"], "unmap-late"),
    ("t_servers", &[], "window-stays"),
    ("t_defer", &[], "copy-behind"),
];
/// Within so many seconds it has to notice.
const BREAK_SECONDS: u32 = 60;
/// So often the mistake may bring down who is to notice it.
const VICTIMS: usize = 3;
/// What a boot needs beyond the time that the program was given.
const ALLOWANCE: Duration = Duration::from_secs(60);

/// One run of tlbtorture.
#[derive(Debug, Clone, Copy)]
struct Torture<'a> {
    options: &'a str,
    policy: &'a str,
    seconds: u32,
    cpus: usize,
    windows: bool,
}

/// What the rows of a run add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    stale: u64,
    operations: u64,
}

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let machines: &[usize] = if test.fast { &[2] } else { &[2, 4] };
    for &cpus in machines {
        let name = format!("coherence: madvise checks itself on {cpus} CPUs");
        tally.check(&name, || madvise(fleet, fleet.kernel(), cpus));
        let name = format!("coherence: pingpong checks itself on {cpus} CPUs");
        tally.check(&name, || pingpong(fleet, fleet.kernel(), cpus));
        let name = format!("coherence: dirtysync checks itself on {cpus} CPUs");
        tally.check(&name, || dirtysync(fleet, fleet.kernel(), cpus));
        let name = format!("coherence: zerocopy checks itself on {cpus} CPUs");
        tally.check(&name, || zerocopy(fleet, fleet.kernel(), cpus));
    }
    let (seconds, machines): (u32, &[usize]) = match (test.fast, test.soak) {
        (true, _) => (3, &[2, 4]),
        (_, true) => (60, &[2, 4, 8]),
        _ => (4, &[2, 4, 8]),
    };
    for &cpus in machines {
        // One machine shows as much of a policy that differs from `best` in the kernel only.
        let further = (cpus == 4).then_some(DEFERS);
        for policy in POLICIES.into_iter().chain(further) {
            // The other policies do nothing else with windows.
            let windows = matches!(policy, "best" | DEFERS);
            let torture = Torture {
                options: "",
                policy,
                seconds,
                cpus,
                windows,
            };
            let with = if windows { " with windows" } else { "" };
            let name = format!("coherence: tlbtorture{with}, {policy}, {seconds} s on {cpus} CPUs");
            tally.check(&name, || clean(&torture.run(fleet, fleet.kernel())?));
        }
    }
    for (step, policy) in BREAKS {
        tally.check(&format!("coherence: tlbtorture notices {step}"), || {
            broken(fleet, step, policy)
        });
    }
    for (program, arguments, step) in NOTICED {
        let name = format!("coherence: {program} notices {step}");
        tally.check(&name, || noticed(fleet, (program, arguments), step));
    }
    on_linux(fleet, tally);
}

/// The same programs on Linux: a difference is ours.
fn on_linux(fleet: &Fleet, tally: &mut Tally) {
    let names = [
        "linux: madvise checks itself",
        "linux: tlbtorture",
        "linux: pingpong checks itself",
    ];
    let Some(linux) = fleet.linux() else {
        for name in names {
            tally.skip(
                name,
                "no Linux image here; `./lab doctor` says how to get one",
            );
        }
        return;
    };
    let torture = Torture {
        options: "",
        policy: "linux",
        seconds: 3,
        cpus: 2,
        windows: false,
    };
    tally.check(names[0], || madvise(fleet, &linux, 2));
    tally.check(names[1], || clean(&torture.run(fleet, &linux)?));
    tally.check(names[2], || pingpong(fleet, &linux, 2));
}

fn madvise(fleet: &Fleet, kernel: &Kernel, cpus: usize) -> Outcome<String> {
    let threads = format!("--threads={cpus}");
    let arguments = [
        "--pages=1,32",
        &threads,
        "--slice-ms=20",
        "--rounds=1",
        "--warmup-ms=5",
        "--self-check",
    ];
    checked(fleet, kernel, ("madvise", &arguments), cpus)
}

/// Writes to a file and its syncs; every word of the stored copy is compared.
fn dirtysync(fleet: &Fleet, kernel: &Kernel, cpus: usize) -> Outcome<String> {
    let threads = format!("--threads=1,{cpus}");
    let arguments = [
        "--file-mib=4",
        &threads,
        "--slice-ms=50",
        "--rounds=1",
        "--warmup-ms=5",
    ];
    checked(fleet, kernel, ("dirtysync", &arguments), cpus)
}

/// Pages lent to servers, in windows and otherwise; every word of their copies is compared.
fn zerocopy(fleet: &Fleet, kernel: &Kernel, cpus: usize) -> Outcome<String> {
    let threads = format!("--threads=1,{cpus}");
    let arguments = [
        "--pages=1,17",
        &threads,
        "--slice-ms=50",
        "--rounds=1",
        "--warmup-ms=5",
    ];
    checked(fleet, kernel, ("zerocopy", &arguments), cpus)
}

/// Processes that share a CPU: switches, copies on write, and visits to another CPU.
fn pingpong(fleet: &Fleet, kernel: &Kernel, cpus: usize) -> Outcome<String> {
    let arguments = [
        "--spaces=2,9",
        "--pages=64",
        "--slice-ms=20",
        "--rounds=1",
        "--warmup-ms=5",
        "--self-check",
    ];
    checked(fleet, kernel, ("pingpong", &arguments), cpus)
}

fn checked(
    fleet: &Fleet,
    kernel: &Kernel,
    (program, arguments): (&str, &[&str]),
    cpus: usize,
) -> Outcome<String> {
    let start = Start {
        options: "",
        arguments,
        cpus,
        deadline: ALLOWANCE,
    };
    clean(&fleet.boot(kernel, program, start)?)
}

impl Torture<'_> {
    fn run(self, fleet: &Fleet, kernel: &Kernel) -> Outcome<Finished> {
        let seconds = format!("--seconds={}", self.seconds);
        let (threads, policies) = (
            format!("--threads={}", self.cpus),
            format!("--policies={}", self.policy),
        );
        let all = [seconds.as_str(), &threads, &policies, WINDOWS];
        let arguments = if self.windows { &all } else { &all[..3] };
        let deadline = ALLOWANCE + Duration::from_secs(u64::from(self.seconds) * 2);
        let start = Start {
            options: self.options,
            arguments,
            cpus: self.cpus,
            deadline,
        };
        fleet.boot(kernel, "tlbtorture", start)
    }
}

/// Passes if the program ended well, did something, and saw nothing stale.
pub(super) fn clean(finished: &Finished) -> Outcome<String> {
    let sum = Sum::of(&finished.console)?;
    if finished.end != End::Exited(0) || sum.rows == 0 || sum.operations == 0 || sum.stale > 0 {
        return Err(Failure::work(format!("{sum:?}; {}", finished.account())));
    }
    Ok(format!("{} operations, none stale", sum.operations))
}

/// Passes if the program failed because of what it saw, and not in another way.
fn broken(fleet: &Fleet, step: &str, policy: &str) -> Outcome<String> {
    let options = format!("break={step}");
    let torture = Torture {
        options: &options,
        policy,
        seconds: BREAK_SECONDS,
        cpus: 2,
        windows: false,
    };
    let finished = survivor(|| torture.run(fleet, fleet.breakable()))?;
    let sum = Sum::of(&finished.console)?;
    if finished.end != End::Exited(1) || sum.stale == 0 {
        return Err(Failure::work(format!(
            "{step} went unnoticed: {sum:?}; {}",
            finished.account()
        )));
    }
    let seconds = finished.elapsed.as_secs_f64();
    Ok(format!(
        "{} stale among {} operations, {seconds:.1} s with the boot",
        sum.stale, sum.operations
    ))
}

/// Boots until neither the program nor the kernel is brought down: the pages that the kernel mistreats may be a stack of the program,
/// or come to hold what the kernel keeps, and then nobody can say what the program saw.
fn survivor(mut boot: impl FnMut() -> Outcome<Finished>) -> Outcome<Finished> {
    let mut finished = boot()?;
    for _ in 1..VICTIMS {
        if !matches!(finished.end, End::Signalled(_) | End::Panicked(_)) {
            break;
        }
        finished = boot()?;
    }
    Ok(finished)
}

/// Passes if the program failed because of what it saw, and said so.
fn noticed(fleet: &Fleet, (program, arguments): (&str, &[&str]), step: &str) -> Outcome<String> {
    let options = format!("break={step}");
    let words = format!("{program}: FAILED: ");
    let start = Start {
        options: &options,
        arguments,
        cpus: 4,
        deadline: 2 * ALLOWANCE,
    };
    let finished = survivor(|| fleet.boot(fleet.breakable(), program, start))?;
    let said = finished.console.lines().find(|line| line.contains(&words));
    match (&finished.end, said) {
        (End::Exited(1), Some(line)) => Ok(line.trim().to_owned()),
        _ => Err(Failure::work(format!(
            "{step} went unnoticed: {}",
            finished.account()
        ))),
    }
}

impl Sum {
    /// Adds up the result rows that a console shows.
    fn of(console: &str) -> Outcome<Self> {
        let mut sum = Self::default();
        for line in console.lines() {
            let row = match protocol::parse(line.trim_end()) {
                Some(Ok(Message::Row(row))) => row,
                Some(Err(garbled)) => return Err(Failure::work(garbled)),
                _ => continue,
            };
            let number = |key: &str| row.get(key).and_then(Value::as_u64);
            sum.rows += 1;
            sum.stale += number("stale")
                .ok_or_else(|| Failure::work(format!("a row without `stale`: {line}")))?;
            sum.operations += number("operations").or(number("iterations")).unwrap_or(0);
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_programs_add_up() {
        let console =
            "@row {\"stale\":1,\"operations\":5}\r\nwords\n@row {\"stale\":0,\"iterations\":7}\n";
        assert_eq!(
            Sum::of(console).unwrap(),
            Sum {
                rows: 2,
                stale: 1,
                operations: 12
            }
        );
    }

    #[test]
    fn rows_that_cannot_be_judged_fail() {
        assert!(Sum::of("@row {\"operations\":5}").is_err());
        assert!(Sum::of("@row {\"stale\":").is_err());
    }
}
