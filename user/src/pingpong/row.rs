//! One row of the table: what was found for one policy, and how it is printed.

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::counters::{self, Counters};
use crate::summary::{self, Summary};

/// Samples of one row, before thinning; they bound the memory a run needs.
const MAX_SAMPLES: usize = 1 << 18;

/// The axes of the table, but for the policy.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Processes in the ring.
    pub spaces: usize,
    /// Pages read in a turn.
    pub pages: usize,
}

/// What is gathered for one policy and shape.
#[derive(Debug)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// Ticks of each time round the ring; the first `taken` are filled.
    pub samples: Vec<u32>,
    /// Samples taken.
    pub taken: usize,
    /// Turns in slices, with those that were not recorded.
    pub turns: u64,
    /// Reads that saw what they must not.
    pub stale: u64,
    /// Times round the ring in the check.
    pub check_rounds: u64,
    /// What the kernel's counters grew by during slices.
    pub counters: Counters,
}

impl Row {
    /// An empty row for `policy`.
    ///
    /// Make it after the last fork: the measured loop would pay for the copies of pages shared with the others.
    pub fn new(policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            // Written, not just reserved: the measured loop must not fault on it.
            samples: vec![1; MAX_SAMPLES],
            taken: 0,
            turns: 0,
            stale: 0,
            check_rounds: 0,
            counters: Counters::new(),
        }
    }

    /// Sorts and summarises the samples, in ticks; `None` without any.
    pub fn summarise(&mut self) -> Option<Summary> {
        Summary::of(&mut self.samples[..self.taken])
    }

    /// The row for the lab, with at most `limit` samples; `reference` is what the ratio is to. Call after
    /// [`Row::summarise`], which sorts the samples.
    pub fn to_json(
        &self,
        shape: Shape,
        ticks: &Summary,
        reference: Option<&Summary>,
        clock: &Clock,
        limit: usize,
    ) -> Value {
        let turn_ns = |ticks: u64| turn_ns(clock.to_ns(ticks), shape.spaces);
        let thinned = summary::thin(&self.samples[..self.taken], limit);
        let samples: Vec<f64> = thinned.iter().map(|&t| turn_ns(u64::from(t))).collect();
        json!({
            "policy": self.policy,
            "spaces": shape.spaces,
            "pages": shape.pages,
            "median_ns": turn_ns(ticks.median),
            "p99_ns": turn_ns(ticks.p99),
            "min_ns": turn_ns(ticks.min),
            "ratio": summary::ratio(ticks.median, reference.map(|summary| summary.median)),
            "iterations": self.turns,
            "ipis_per_op": counters::share(counters::ipis_sent(&self.counters), self.turns),
            "stale": self.stale,
            "check_rounds": self.check_rounds,
            "counters": counters::per_operation(&self.counters, self.turns),
            "samples": samples,
        })
    }
}

/// One turn's share of a time round the ring, rounded to a tenth.
fn turn_ns(round_ns: u64, spaces: usize) -> f64 {
    (round_ns as f64 * 10.0 / spaces as f64).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_its_share_of_the_round() {
        assert_eq!(turn_ns(3000, 2), 1500.0);
        assert_eq!(turn_ns(100, 12), 8.3);
    }
}
