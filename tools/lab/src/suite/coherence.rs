//! Checks that no stale translation is ever used, and that they would notice if one were.

use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::bench::Row;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished, Kernel};

const POLICIES: [&str; 3] = ["before", "published", "best"];
/// Has tlbtorture lend pages through windows, too.
pub(super) const WINDOWS: &str = " --windows";
/// Programs that check themselves, and their arguments, with `%` for the number of CPUs. The first two do so on Linux too: a difference is
/// ours.
///
/// After them, writes to a file and its syncs, of whose stored copy every word is compared; and pages lent to servers, in windows and
/// otherwise, of whose copies every word is.
const CHECKED: [(&str, &str); 4] = [
    (
        "madvise",
        "--pages=1,32 --threads=% --slice-ms=20 --rounds=1 --warmup-ms=5 --self-check",
    ),
    // Processes that share a CPU: switches, copies on write, and visits to another CPU.
    (
        "pingpong",
        "--spaces=2,9 --pages=64 --slice-ms=20 --rounds=1 --warmup-ms=5 --self-check",
    ),
    (
        "dirtysync",
        "--file-mib=4 --threads=1,% --slice-ms=50 --rounds=1 --warmup-ms=5",
    ),
    (
        "zerocopy",
        "--pages=1,17 --threads=1,% --slice-ms=50 --rounds=1 --warmup-ms=5",
    ),
];
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
/// its parent wrote after the fork, the stored copy of a file lacks a write, a server works on an earlier client's page, a call
/// copies from a page that was discarded, a guest reads one, a page that it writes to is in no log, or two threads do not see each other.
const NOTICED: [(&str, &str, &str); 9] = [
    ("t_fork", "", "fork-local"),
    ("t_dirty", "600", "sync-local"),
    ("t_dirty", "600", "copy-early"),
    ("t_dirty", "600", "unmap-late"),
    ("t_servers", "", "window-stays"),
    ("t_defer", "", "copy-behind"),
    ("t_kvm_memory", "", "guest-stays"),
    ("t_kvm_memory", "", "log-stays"),
    ("t_membarrier", "", "barrier-here"),
];
/// Within so many seconds it has to notice.
const BREAK_SECONDS: u32 = 60;
/// A program that looks for a race may need so many boots: on a busy host CPUs rarely run side by side.
const LOOKS: usize = 3;
/// So often the mistake may bring down who is to notice it.
const VICTIMS: usize = 5;

/// What the rows of a run add up to.
#[derive(Debug, Default)]
struct Sum {
    rows: u64,
    stale: u64,
    operations: u64,
}

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let machines: &[usize] = if test.fast { &[2] } else { &[2, 4] };
    for &cpus in machines {
        for (program, arguments) in CHECKED {
            let name = format!("coherence: {program} checks itself on {cpus} CPUs");
            tally.check(&name, || {
                checked(fleet, &fleet.kernel, (program, arguments), cpus)
            });
        }
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
            let (with, windows) = match policy {
                "best" | DEFERS => (" with windows", WINDOWS),
                _ => ("", ""),
            };
            let name = format!("coherence: tlbtorture{with}, {policy}, {seconds} s on {cpus} CPUs");
            let policies = format!("{policy}{windows}");
            tally.check(&name, || {
                clean(&torture(
                    fleet,
                    &fleet.kernel,
                    &policies,
                    Start::lasting(seconds, cpus),
                )?)
            });
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
    tally.check("coherence: the kernel notices walk-unprotected", || {
        walked_freed(fleet)
    });
    on_linux(fleet, tally);
}

/// Passes if the kernel says that it read a page table that was freed.
fn walked_freed(fleet: &Fleet) -> Outcome<String> {
    let start = Start {
        options: "break=walk-unprotected",
        ..Start::lasting(30, 4)
    };
    let words = "a page table was freed under a reader";
    let finished = fleet.boot(&fleet.breakable, "t_walk", start)?;
    let said = finished.console.lines().find(|line| line.contains(words));
    match (&finished.end, said) {
        (End::Panicked(_), Some(line)) => Ok(line.trim().to_owned()),
        _ => Err(Failure::work(format!(
            "walk-unprotected went unnoticed: {}",
            finished.account()
        ))),
    }
}

fn on_linux(fleet: &Fleet, tally: &mut Tally) {
    let [madvise, pingpong, ..] = CHECKED;
    fleet.check_on_linux(tally, "linux: madvise checks itself", |linux| {
        checked(fleet, linux, madvise, 2)
    });
    fleet.check_on_linux(tally, "linux: tlbtorture", |linux| {
        clean(&torture(fleet, linux, "linux", Start::lasting(3, 2))?)
    });
    fleet.check_on_linux(tally, "linux: pingpong checks itself", |linux| {
        checked(fleet, linux, pingpong, 2)
    });
}

fn checked(
    fleet: &Fleet,
    kernel: &Kernel,
    (program, arguments): (&str, &str),
    cpus: usize,
) -> Outcome<String> {
    let start = Start {
        arguments: &arguments.replace('%', &cpus.to_string()),
        ..Start::on(cpus)
    };
    clean(&fleet.boot(kernel, program, start)?)
}

/// Runs tlbtorture as long as the start is meant to last.
fn torture(fleet: &Fleet, kernel: &Kernel, policies: &str, start: Start<'_>) -> Outcome<Finished> {
    let Start { cpus, seconds, .. } = start;
    let arguments = format!("--seconds={seconds} --threads={cpus} --policies={policies}");
    let start = Start {
        arguments: &arguments,
        ..start
    };
    fleet.boot(kernel, "tlbtorture", start)
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
    let start = Start {
        options: &format!("break={step}"),
        ..Start::lasting(BREAK_SECONDS, 2)
    };
    let finished = survivor(|| torture(fleet, &fleet.breakable, policy, start))?;
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
fn noticed(fleet: &Fleet, (program, arguments): (&str, &str), step: &str) -> Outcome<String> {
    let start = Start {
        options: &format!("break={step}"),
        arguments,
        ..Start::lasting(30, 4)
    };
    let words = format!("{program}: FAILED: ");
    let boot = || survivor(|| fleet.boot(&fleet.breakable, program, start));
    let mut finished = boot()?;
    for _ in 1..LOOKS {
        if finished.end != End::Exited(0) {
            break;
        }
        finished = boot()?;
    }
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
        for row in Row::all_of(console)? {
            if row.number("stale").is_none() {
                return Err(Failure::work(format!("a row without `stale`: {row:?}")));
            }
            sum.rows += 1;
            sum.stale += row.count("stale");
            // A row has one of them.
            sum.operations += row.count("operations").max(row.count("iterations"));
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
        let sum = Sum::of(console).unwrap();
        assert_eq!((sum.rows, sum.stale, sum.operations), (2, 1, 12));
    }

    #[test]
    fn rows_that_cannot_be_judged_fail() {
        assert!(Sum::of("@row {\"operations\":5}").is_err());
        assert!(Sum::of("@row {\"stale\":").is_err());
    }
}
