//! What became of a mutant, and the report.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::catalogue::Mutant;

/// What became of one mutant.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A check failed.
    Killed {
        /// Which.
        by: String,
        /// What it said.
        evidence: String,
    },
    /// Every check passed.
    Survived,
    /// It could not be tried: an edit does not apply, or the result does not build.
    Broken(String),
}

impl Verdict {
    /// Whether the checks did what they are for.
    pub fn is_killed(&self) -> bool {
        matches!(self, Self::Killed { .. })
    }

    /// One line about `mutant`.
    pub fn line(&self, mutant: &Mutant) -> String {
        let id = &mutant.id;
        match self {
            Self::Killed { by, evidence } => format!("{id}: {by}: {evidence}"),
            Self::Survived => {
                let tried: Vec<String> = mutant.killers.iter().map(ToString::to_string).collect();
                format!(
                    "{id} survived {}: {} {} ({})",
                    tried.join(", "),
                    mutant.breaks,
                    mutant.happens,
                    mutant.origin
                )
            }
            Self::Broken(reason) => format!("{id} could not be tried: {reason}"),
        }
    }
}

/// The count so far.
#[derive(Debug)]
pub struct Tally {
    killed: u64,
    failures: Vec<String>,
    started: Instant,
}

impl Tally {
    /// Nothing counted.
    pub fn new() -> Self {
        Self {
            killed: 0,
            failures: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Counts and prints one.
    pub fn add(&mut self, mutant: &Mutant, verdict: &Verdict, took: Duration) {
        let line = verdict.line(mutant);
        let seconds = took.as_secs_f64();
        if verdict.is_killed() {
            self.killed += 1;
            println!("killed  {line} ({seconds:.1} s)");
        } else {
            println!("FAIL    {line} ({seconds:.1} s)");
            self.failures.push(line);
        }
    }

    /// Prints the failures again and, last and alone on its line, the totals.
    pub fn close(self) -> ExitCode {
        if !self.failures.is_empty() {
            println!("\nfailed:\n  {}", self.failures.join("\n  "));
        }
        println!("\ntook {:.0} s", self.started.elapsed().as_secs_f64());
        println!("{} passed, {} failed", self.killed, self.failures.len());
        ExitCode::from(u8::from(!self.failures.is_empty() || self.killed == 0))
    }
}
