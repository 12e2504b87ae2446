//! One row of the table: what was found for one policy, and how it is printed.

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::counters::{self, Counters};
use crate::summary::{self, Summary};

/// Samples of one row, before thinning; they bound the memory a run needs.
const MAX_SAMPLES: usize = 1 << 19;

/// The axes of the table, but for the policy.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Threads of the process.
    pub threads: usize,
    /// Pages per iteration.
    pub pages: usize,
}

/// What is gathered for one policy; the buffer serves one shape after another.
#[derive(Debug)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// Ticks of each iteration; the first `found.taken` are of this shape.
    pub samples: Vec<u32>,
    /// Everything else.
    pub found: Found,
}

/// What slices and check found.
#[derive(Debug, Default)]
pub struct Found {
    /// Samples taken.
    pub taken: usize,
    /// Iterations in slices, with those that were not recorded.
    pub iterations: u64,
    /// Reads that saw what they must not.
    pub stale: u64,
    /// Rounds of the check.
    pub check_rounds: u64,
    /// Reads judged by the check.
    pub check_reads: u64,
    /// What the kernel's counters grew by during slices.
    pub counters: Counters,
}

impl Row {
    /// An empty row for `policy`.
    pub fn new(policy: String) -> Self {
        // Written, not just reserved: the measured loop must not fault on it.
        Self {
            policy,
            samples: vec![1; MAX_SAMPLES],
            found: Found::default(),
        }
    }

    /// Forgets what was found, for the next shape.
    pub fn reset(&mut self) {
        self.found = Found::default();
    }

    /// Sorts and summarises the samples, in ticks; `None` without any.
    pub fn summarise(&mut self) -> Option<Summary> {
        Summary::of(&mut self.samples[..self.found.taken])
    }

    /// The row for the lab, with at most `limit` samples; `reference` is the median, in ticks, that
    /// the ratio is to. Call after [`Row::summarise`], which sorts the samples.
    pub fn to_json(
        &self,
        shape: Shape,
        ticks: &Summary,
        reference: Option<u64>,
        clock: &Clock,
        limit: usize,
    ) -> Value {
        let found = &self.found;
        let thinned = summary::thin(&self.samples[..found.taken], limit);
        let samples: Vec<u64> = thinned.iter().map(|&t| clock.to_ns(u64::from(t))).collect();
        json!({
            "policy": self.policy,
            "threads": shape.threads,
            "pages": shape.pages,
            "median_ns": clock.to_ns(ticks.median),
            "p99_ns": clock.to_ns(ticks.p99),
            "min_ns": clock.to_ns(ticks.min),
            "ratio": summary::ratio(ticks.median, reference),
            "iterations": found.iterations,
            "ipis_per_op": counters::share(counters::ipis_sent(&found.counters), found.iterations),
            "stale": found.stale,
            "check_rounds": found.check_rounds,
            "check_reads": found.check_reads,
            "counters": counters::per_operation(&found.counters, found.iterations),
            "samples": samples,
        })
    }
}
