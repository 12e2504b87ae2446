//! Checks on Bochs, whose processors have PCIDs: that the kernel turns them on by the rules, and that programs keep their
//! tags and see nothing stale.

use std::time::Duration;

use serde_json::Value;

use super::churn::ring0_verdict;
use super::coherence::clean;
use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{BOCHS_INSTALL, Bochs, BochsModel, Finished};
use crate::protocol::{self, Message};

/// Ten times what the slowest check takes on an idle host.
const DEADLINE: Duration = Duration::from_secs(300);
const CPUS: usize = 2;

/// A check: its name, and what it does.
type Check = (&'static str, fn(&Fleet, &Bochs) -> Outcome<String>);

const CHECKS: [Check; 8] = [
    ("bochs: self-tests with INVPCID", self_tests),
    ("bochs: self-tests without INVPCID", self_tests_old),
    ("bochs: hello with pcid=off", hello_untagged),
    ("bochs: pingpong keeps its tags", pingpong),
    ("bochs: pingpong without INVPCID", pingpong_old),
    ("bochs: tlbtorture, best, 1 s", torture),
    ("bochs: t_servers under tags", servers),
    ("bochs: torture in ring 0, 1 s", torture_ring0),
];
/// So many of them are run by `--fast`.
const FAST: usize = 1;
/// So many by a run that did not ask for Bochs, nor for a long one.
const USUAL: usize = 6;

/// Runs them all, or skips them where Bochs is missing, unless it was asked for.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let bochs = Bochs::find();
    for (index, (name, check)) in CHECKS.into_iter().enumerate() {
        if test.fast && index >= FAST {
            tally.skip(name, "left out by --fast");
            continue;
        }
        if index >= USUAL && !test.soak && test.machine.is_none() {
            tally.skip(name, "left out without --soak or --machine bochs");
            continue;
        }
        match &bochs {
            Ok(bochs) => tally.check(name, || check(fleet, bochs)),
            Err(missing) if test.machine.is_some() => {
                tally.check(name, || Err(Failure::work(missing)));
            }
            Err(_) => {
                let reason =
                    format!("Bochs is not complete here; install it with  {BOCHS_INSTALL}");
                tally.skip(name, &reason);
            }
        }
    }
}

/// The plain kernel on the newer processor.
fn boot(
    fleet: &Fleet,
    bochs: &Bochs,
    program: &str,
    options: &str,
    arguments: &[&str],
) -> Outcome<Finished> {
    let machine = (bochs, BochsModel::Skylake);
    fleet
        .boot_bochs(machine, fleet.kernel(), program, start(options, arguments))?
        .expect_success(program)
}

fn start<'a>(options: &'a str, arguments: &'a [&'a str]) -> Start<'a> {
    Start {
        options,
        arguments,
        cpus: CPUS,
        deadline: DEADLINE,
    }
}

/// What the kernel's first line says of tags.
fn tags_a_cpu(finished: &Finished) -> Outcome<u32> {
    let number = finished.console.lines().find_map(|line| {
        let (before, _) = line.split_once(" tags a CPU")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    number.ok_or_else(|| Failure::work(format!("no number of tags; {}", finished.account())))
}

fn self_tests(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    self_tests_on(fleet, (bochs, BochsModel::Skylake))
}

fn self_tests_old(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    self_tests_on(fleet, (bochs, BochsModel::SandyBridge))
}

/// Every way to load and to flush a tag: the processor faults where one breaks a rule.
fn self_tests_on(fleet: &Fleet, machine: (&Bochs, BochsModel)) -> Outcome<String> {
    let start = start("selftest=all", &[]);
    let finished = fleet
        .boot_bochs(machine, fleet.breakable(), "hello", start)?
        .expect_success("hello")?;
    if !finished.console.contains("selftest: tags passed") {
        return Err(Failure::work(format!(
            "no word of tags; {}",
            finished.account()
        )));
    }
    match tags_a_cpu(&finished)? {
        0 => Err(Failure::work(format!("no tags; {}", finished.account()))),
        tags => Ok(format!("{tags} tags a CPU")),
    }
}

fn hello_untagged(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    let finished = boot(fleet, bochs, "hello", "pcid=off", &[])?;
    match tags_a_cpu(&finished)? {
        0 => Ok(String::new()),
        tags => Err(Failure::work(format!(
            "{tags} tags in spite of pcid=off; {}",
            finished.account()
        ))),
    }
}

/// Kernel threads that change page tables and enter spaces on processors with tags, which come and go.
fn torture_ring0(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    ring0_verdict(&boot(fleet, bochs, "hello", "torture=1 seed=1", &[])?)
}

fn pingpong(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    pingpong_on(fleet, (bochs, BochsModel::Skylake))
}

fn pingpong_old(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    pingpong_on(fleet, (bochs, BochsModel::SandyBridge))
}

/// Twelve spaces take turns: under `best` all keep their tags, `before` has none.
fn pingpong_on(fleet: &Fleet, machine: (&Bochs, BochsModel)) -> Outcome<String> {
    let arguments = [
        "--spaces=12",
        "--pages=8",
        "--policies=before,best",
        "--slice-ms=40",
        "--rounds=1",
        "--warmup-ms=20",
        "--samples=4",
    ];
    let finished = fleet
        .boot_bochs(machine, fleet.kernel(), "pingpong", start("", &arguments))?
        .expect_success("pingpong")?;
    clean(&finished)?;
    let (before, best) = (kept(&finished, "before")?, kept(&finished, "best")?);
    if before == 0.0 && best > 0.5 {
        return Ok(format!("{best:.2} tags kept a turn"));
    }
    Err(Failure::work(format!(
        "tags kept a turn: {before} under before, {best} under best; {}",
        finished.account()
    )))
}

/// Tags kept a turn, in the row of a policy.
fn kept(finished: &Finished, policy: &str) -> Outcome<f64> {
    for line in finished.console.lines() {
        let row = match protocol::parse(line.trim_end()) {
            Some(Ok(Message::Row(row))) => row,
            Some(Err(garbled)) => return Err(Failure::work(garbled)),
            _ => continue,
        };
        if row.get("policy").and_then(Value::as_str) == Some(policy) {
            let counters = row.get("counters");
            let kept = counters.and_then(|counters| counters.get("tags_kept"));
            // A counter that did not move is left out.
            return Ok(kept.and_then(Value::as_f64).unwrap_or(0.0));
        }
    }
    Err(Failure::work(format!(
        "no row of {policy}; {}",
        finished.account()
    )))
}

/// Private roots under tags of their own, beside the shared roots of the same spaces.
fn servers(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    let finished = boot(fleet, bochs, "t_servers", "", &[])?;
    match tags_a_cpu(&finished)? {
        0 => Err(Failure::work(format!("no tags; {}", finished.account()))),
        tags => Ok(format!("{tags} tags a CPU")),
    }
}

fn torture(fleet: &Fleet, bochs: &Bochs) -> Outcome<String> {
    let arguments = ["--seconds=1", "--threads=2", "--policies=best"];
    clean(&boot(fleet, bochs, "tlbtorture", "", &arguments)?)
}
