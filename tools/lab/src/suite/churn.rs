//! Checks that CPUs may leave and come back under load: nothing stale, nothing lost, nobody stuck.

use std::time::Duration;

use super::coherence;
use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::Kernel;

/// Each CPU that can has to leave at least so often.
const ROUNDS_PER_CPU: u64 = 20;
/// What tlbtorture says at its end.
const WORDS: (&str, &str) = ("CPUs left and came back ", " times");
/// What a boot needs beyond the time that the program was given.
const ALLOWANCE: Duration = Duration::from_secs(60);

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let (seconds, machines): (u32, &[usize]) = match (test.fast, test.soak) {
        (true, _) => (6, &[2]),
        (_, true) => (60, &[2, 4, 8]),
        _ => (6, &[4]),
    };
    for &cpus in machines {
        let name = format!("churn: tlbtorture while CPUs leave, {seconds} s on {cpus} CPUs");
        tally.check(&name, || torture(fleet, fleet.kernel(), seconds, cpus));
    }
}

/// Passes if the program saw nothing stale, and the CPUs have left often enough.
fn torture(fleet: &Fleet, kernel: &Kernel, seconds: u32, cpus: usize) -> Outcome<String> {
    let (seconds_option, threads) = (format!("--seconds={seconds}"), format!("--threads={cpus}"));
    let arguments = [seconds_option.as_str(), &threads, "--churn"];
    let start = Start {
        options: "",
        arguments: &arguments,
        cpus,
        deadline: ALLOWANCE + Duration::from_secs(u64::from(seconds) * 2),
    };
    let finished = fleet.boot(kernel, "tlbtorture", start)?;
    let account = coherence::clean(&finished)?;
    let rounds = rounds(&finished.console)
        .ok_or_else(|| Failure::work("the program does not say how often CPUs left"))?;
    let due = ROUNDS_PER_CPU * (cpus as u64 - 1);
    if rounds < due {
        return Err(Failure::work(format!(
            "CPUs left {rounds} times only, {due} were due; {}",
            finished.account()
        )));
    }
    Ok(format!("{account}; CPUs left {rounds} times"))
}

fn rounds(console: &str) -> Option<u64> {
    let (_, rest) = console.split_once(WORDS.0)?;
    rest.split_once(WORDS.1)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_rounds_is_found() {
        let console = "words\ntlbtorture: CPUs left and came back 171 times\r\n@row {}\n";
        assert_eq!(rounds(console), Some(171));
        assert_eq!(rounds("CPUs left"), None);
    }
}
