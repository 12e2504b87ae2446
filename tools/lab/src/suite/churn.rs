//! Checks that CPUs may leave and come back under load: nothing stale, nothing lost, nobody stuck.

use std::time::Duration;

use super::coherence;
use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished};

/// Each CPU that can has to leave at least so often.
const ROUNDS: u64 = 20;
/// What tlbtorture says at its end.
const ROUNDS_WORDS: (&str, &str) = ("each CPU left and came back ", " times");
/// What the torture in ring 0 says about CPUs that left or came back.
const CHURN_WORDS: (&str, &str) = ("torture: operation=churn done=", "\n");
/// What it says at its end.
const VERDICT: &str = "torture: done violations=0 ";
/// The torture in ring 0 plays the first program; this one is only carried along.
const PROGRAM: &str = "hello";
/// What it takes CPUs to leave and come back on a busy host.
const ALLOWANCE: Duration = Duration::from_secs(60);

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let (seconds, machines): (u32, &[usize]) = match (test.fast, test.soak) {
        (true, _) => (3, &[2]),
        (_, true) => (60, &[2, 4, 8]),
        _ => (6, &[4]),
    };
    for &cpus in machines {
        let name =
            format!("churn: tlbtorture with windows while CPUs leave, {seconds} s on {cpus} CPUs");
        tally.check(&name, || torture(fleet, seconds, cpus));
        let name = format!("churn: torture in ring 0, {seconds} s on {cpus} CPUs");
        tally.check(&name, || ring0(fleet, seconds, cpus));
    }
}

/// Passes if the program saw nothing stale, and the CPUs have left often enough.
fn torture(fleet: &Fleet, seconds: u32, cpus: usize) -> Outcome<String> {
    let windows = coherence::WINDOWS;
    let arguments = format!("--seconds={seconds} --threads={cpus} --churn={ROUNDS}{windows}");
    let start = Start {
        arguments: &arguments,
        ..start(seconds, cpus)
    };
    let finished = fleet.boot(&fleet.kernel, "tlbtorture", start)?;
    let account = coherence::clean(&finished)?;
    match number(&finished.console, ROUNDS_WORDS) {
        Some(rounds) if rounds >= ROUNDS => Ok(format!("{account}; each CPU left {rounds} times")),
        rounds => Err(Failure::work(format!(
            "each CPU left {rounds:?} times, {ROUNDS} were due; {}",
            finished.account()
        ))),
    }
}

fn start(seconds: u32, cpus: usize) -> Start<'static> {
    let mut start = Start::lasting(seconds, cpus);
    start.deadline += ALLOWANCE;
    start
}

/// Passes if the engine broke no promise, the watchdog had nothing to say, and CPUs left meanwhile.
fn ring0(fleet: &Fleet, seconds: u32, cpus: usize) -> Outcome<String> {
    let start = Start {
        options: &format!("torture={seconds} seed=1"),
        ..start(seconds, cpus)
    };
    ring0_verdict(&fleet.boot(&fleet.kernel, PROGRAM, start)?)
}

/// What the torture says in the end, if all was well.
pub(super) fn ring0_verdict(finished: &Finished) -> Outcome<String> {
    let console = &finished.console;
    let churned = number(console, CHURN_WORDS).unwrap_or(0);
    let verdict = console.lines().find(|line| line.starts_with(VERDICT));
    let stalled = console.lines().any(|line| line.starts_with("stall: "));
    match verdict {
        Some(line) if finished.end == End::Exited(0) && churned > 0 && !stalled => Ok(format!(
            "{}; CPUs left or came back {churned} times",
            line.trim()
        )),
        _ => Err(Failure::work(finished.account())),
    }
}

/// The number between two words, where they are first.
fn number(console: &str, (before, after): (&str, &str)) -> Option<u64> {
    let (_, rest) = console.split_once(before)?;
    rest.split_once(after)?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found() {
        let console = "words\ntlbtorture: each CPU left and came back 171 times\r\n@row {}\n";
        assert_eq!(number(console, ROUNDS_WORDS), Some(171));
        let console = "torture: operation=churn done=60\r\ntorture: operation=set_policy done=9\n";
        assert_eq!(number(console, CHURN_WORDS), Some(60));
        assert_eq!(number("each CPU left", ROUNDS_WORDS), None);
    }
}
