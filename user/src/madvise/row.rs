//! One row of the table: what was found for one policy, and how it is printed.

use serde_json::{Value, json};

use super::slice::Sample;
use crate::clock::Clock;
use crate::counters::{self, Counters};
use crate::policy::REFERENCE_POLICY;
use crate::report;
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
    /// Times of each iteration; the first `found.taken` are of this shape.
    pub samples: Vec<Sample>,
    /// Everything else.
    pub found: Found,
}

/// A row's samples, summarised.
#[derive(Debug)]
pub struct Figures {
    /// Whole iterations.
    pub whole: Summary,
    /// The system call in each.
    pub call: Summary,
    /// Whole iterations in ascending order.
    sorted: Vec<u32>,
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
    /// How long all these iterations together took; 0 where threads are not counted together.
    pub ticks: u64,
    /// What the kernel's counters grew by during slices.
    pub counters: Counters,
}

impl Found {
    /// Iterations a second of all threads, where that was measured.
    fn per_s(&self, clock: &Clock) -> Option<f64> {
        let per_s = self.iterations as f64 * clock.frequency() as f64 / self.ticks as f64;
        (self.ticks > 0).then_some(per_s.round())
    }
}

impl Row {
    /// An empty row for `policy`.
    pub fn new(policy: String) -> Self {
        // Written, not just reserved: the measured loop must not fault on it.
        Self {
            policy,
            samples: vec![Sample { whole: 1, call: 1 }; MAX_SAMPLES],
            found: Found::default(),
        }
    }

    /// Forgets what was found, for the next shape.
    pub fn reset(&mut self) {
        self.found = Found::default();
    }

    /// The samples of this shape in order, in ticks; `None` without any.
    pub fn summarise(&self) -> Option<Figures> {
        let taken = || self.samples[..self.found.taken].iter();
        let mut sorted: Vec<u32> = taken().map(|sample| sample.whole).collect();
        let whole = Summary::of(&mut sorted)?;
        let mut calls: Vec<u32> = taken().map(|sample| sample.call).collect();
        let call = Summary::of(&mut calls)?;
        Some(Figures {
            whole,
            call,
            sorted,
        })
    }

    /// The row for the lab, with at most `limit` samples; `reference` is what the ratios are to.
    pub fn to_json(
        &self,
        shape: Shape,
        figures: &Figures,
        reference: Option<&Figures>,
        clock: &Clock,
        limit: usize,
    ) -> Value {
        let (found, whole, call) = (&self.found, &figures.whole, &figures.call);
        let thinned = summary::thin(&figures.sorted, limit);
        let samples: Vec<u64> = thinned.iter().map(|&t| clock.to_ns(u64::from(t))).collect();
        json!({
            "policy": self.policy,
            "threads": shape.threads,
            "pages": shape.pages,
            "median_ns": clock.to_ns(whole.median),
            "p99_ns": clock.to_ns(whole.p99),
            "min_ns": clock.to_ns(whole.min),
            "ratio": summary::ratio(whole.median, reference.map(|figures| figures.whole.median)),
            "call_median_ns": clock.to_ns(call.median),
            "call_p99_ns": clock.to_ns(call.p99),
            "call_ratio": summary::ratio(call.median, reference.map(|figures| figures.call.median)),
            "per_s": found.per_s(clock),
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

/// Prints what the rows of `shape` found, beside the reference policy's, with at most `limit` samples each.
pub fn print(rows: &[Row], shape: Shape, clock: &Clock, limit: usize) {
    let figures: Vec<Option<Figures>> = rows.iter().map(Row::summarise).collect();
    let reference = rows.iter().position(|row| row.policy == REFERENCE_POLICY);
    let reference = reference.and_then(|index| figures[index].as_ref());
    for (row, own) in rows.iter().zip(&figures) {
        if let Some(own) = own {
            report::row(&row.to_json(shape, own, reference, clock, limit));
        }
    }
}
