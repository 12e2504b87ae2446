//! Counts checks and prints one line for each.

use std::process::ExitCode;
use std::time::Instant;

use crate::colours::{Colour, on_stdout};
use crate::failure::{Failure, Outcome, last_lines};

/// Lines of a reason that are printed again at the end.
const LINES_AGAIN: usize = 12;

/// The count so far.
#[derive(Debug)]
pub struct Tally {
    counts: Counts,
    only: Option<String>,
    started: Instant,
    failures: Vec<String>,
}

/// How many tests a test runner counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Tally {
    /// Nothing counted; checks whose name lacks `only` are left out.
    pub fn new(only: Option<String>) -> Self {
        Self {
            counts: Counts::default(),
            only,
            started: Instant::now(),
            failures: Vec::new(),
        }
    }

    /// Runs checks, and others beside them, which `what` names if they panic.
    pub fn run_beside(
        &mut self,
        what: &str,
        others: impl FnOnce(&mut Self) + Send,
        checks: impl FnOnce(&mut Self),
    ) {
        let mut aside = Self::new(self.only.clone());
        std::thread::scope(|scope| {
            let others = scope.spawn(|| others(&mut aside));
            checks(self);
            if others.join().is_err() {
                self.refuse(what, &Failure::work("the lab panicked there"));
            }
        });
        self.add(aside.counts);
        self.failures.extend(aside.failures);
    }

    fn add(&mut self, counts: Counts) {
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
        self.counts.skipped += counts.skipped;
    }

    /// Runs one check: it passes with a remark, or fails with the reason.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Outcome<String>) {
        let one = Counts {
            passed: 1,
            ..Counts::default()
        };
        self.count(name, || Ok((one, check()?)));
    }

    /// Runs a test runner that counts its own tests: with a remark, or the evidence if some failed.
    pub fn count(&mut self, name: &str, run: impl FnOnce() -> Outcome<(Counts, String)>) {
        if !self.is_wanted(name) {
            return;
        }
        let started = Instant::now();
        match run() {
            Ok((counts, remark)) if counts.failed == 0 => {
                self.add(counts);
                let seconds = started.elapsed().as_secs_f64();
                let gap = if remark.is_empty() { "" } else { ": " };
                println!(
                    "{}  {name} ({seconds:.1} s){gap}{remark}",
                    on_stdout("pass", Colour::Green)
                );
            }
            Ok((counts, evidence)) => {
                self.add(counts);
                let reason = format!("{} of its tests failed\n{evidence}", counts.failed);
                self.tell_failure(name, &reason);
            }
            Err(failure) => self.refuse(name, &failure),
        }
    }

    /// Counts a check that cannot or shall not run here.
    pub fn skip(&mut self, name: &str, reason: &str) {
        if self.is_wanted(name) {
            self.counts.skipped += 1;
            println!("{}  {name}: {reason}", on_stdout("skip", Colour::Yellow));
        }
    }

    /// Counts what none of the following checks can do without as failed, whichever checks are wanted.
    pub fn refuse(&mut self, name: &str, failure: &Failure) {
        self.counts.failed += 1;
        self.tell_failure(name, &failure.to_string());
    }

    /// Prints the failures again, with the ends of their reasons, and, last and alone on its line, the totals.
    pub fn close(self) -> ExitCode {
        if !self.failures.is_empty() {
            println!("\nfailed:\n  {}", self.failures.join("\n  "));
        }
        println!("\ntook {:.0} s", self.started.elapsed().as_secs_f64());
        println!("{}", self.totals());
        ExitCode::from(u8::from(self.counts.failed > 0 || self.counts.passed == 0))
    }

    fn totals(&self) -> String {
        let counts = self.counts;
        let line = format!("{} passed, {} failed", counts.passed, counts.failed);
        match counts.skipped {
            0 => line,
            skipped => format!("{line}, {skipped} skipped"),
        }
    }

    fn tell_failure(&mut self, name: &str, reason: &str) {
        println!("{}  {name}: {reason}", on_stdout("FAIL", Colour::Red));
        let last = last_lines(reason.lines(), LINES_AGAIN).join("\n    ");
        self.failures.push(format!("{name}: {last}"));
    }

    /// Whether a check of this name is to run.
    pub fn is_wanted(&self, name: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted_once() {
        let mut tally = Tally::new(None);
        tally.check("a", || Ok(String::new()));
        tally.check("b", || Err(Failure::work("no")));
        tally.skip("c", "reason");
        let counts = Counts {
            passed: 3,
            failed: 2,
            skipped: 1,
        };
        tally.count("d", || Ok((counts, String::new())));
        assert_eq!(tally.totals(), "4 passed, 3 failed, 2 skipped");
        assert_eq!(tally.close(), ExitCode::from(1));
    }

    #[test]
    fn a_run_without_any_check_is_a_failure() {
        let mut tally = Tally::new(Some("nothing is called this".into()));
        tally.check("a", || Ok(String::new()));
        assert_eq!(tally.totals(), "0 passed, 0 failed");
        assert_eq!(tally.close(), ExitCode::from(1));
    }

    #[test]
    fn what_runs_beside_counts() {
        let mut tally = Tally::new(None);
        let others = |aside: &mut Tally| {
            aside.check("b", || Err(Failure::work("no")));
            aside.skip("c", "reason");
        };
        tally.run_beside("others", others, |tally| {
            tally.check("a", || Ok(String::new()));
        });
        assert_eq!(tally.totals(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures, ["b: no"]);
    }

    #[test]
    fn a_panic_beside_is_a_failure() {
        let mut tally = Tally::new(Some("something else".into()));
        tally.run_beside("others", |_| panic!("asked for"), |_| ());
        assert_eq!(tally.totals(), "0 passed, 1 failed");
    }

    #[test]
    fn failures_are_told_again_with_the_end_of_the_reason() {
        let mut tally = Tally::new(None);
        let lines: Vec<String> = (0..LINES_AGAIN + 2).map(|it| it.to_string()).collect();
        tally.check("a", || Err(Failure::work(lines.join("\n"))));
        assert!(tally.failures[0].starts_with("a: 2\n    3\n"));
        assert!(tally.failures[0].ends_with("\n    13"));
    }

    #[test]
    fn a_build_that_fails_is_told_whatever_was_wanted() {
        let mut tally = Tally::new(Some("something else".into()));
        tally.refuse("build", &Failure::work("no"));
        assert_eq!(tally.totals(), "0 passed, 1 failed");
        assert_eq!(tally.close(), ExitCode::from(1));
    }
}
