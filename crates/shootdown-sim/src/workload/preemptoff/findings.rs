//! [`Findings`]: what a row measured.

use shootdown::watch::Stats;

use crate::workload::fairness::quantile;
use crate::workload::preemptoff::Maxima;

/// What the authors of T3 measured on 16 CPUs: system, 99th percentile of the longest spans with preemption off, in
/// nanoseconds.
pub const PUBLISHED_PREEMPTOFF: [(&str, f64); 2] =
    [("before", 16_720_000.0), ("published", 1_560_000.0)];

/// What happened how often.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Flushes of the space, of single pages, of everything with tables, and in batches.
    pub flushes: u64,
    /// Of these, waited for under the page-table lock.
    pub flushed_under_lock: u64,
    /// Flushes of kernel ranges.
    pub kernel_flushes: u64,
    /// Calls of functions.
    pub calls: u64,
    /// Requests that a task made while another task of its CPU was waiting for one of that CPU.
    pub second_requests: u64,
    /// Of these, finished while the first was still under way.
    pub second_overtook: u64,
    /// Requests that first had to wait for the data of an earlier one of their CPU.
    pub call_data_waits: u64,
    /// Times that a task lost its CPU while it waited for a request.
    pub waiters_preempted: u64,
    /// Times that a task that waited went on on another CPU.
    pub waiters_moved: u64,
    /// Long sections with interrupts off.
    pub sections: u64,
}

/// What a row measured.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The longest spans of each CPU in each interval.
    pub maxima: Vec<Vec<Maxima>>,
    /// From when each FIFO thread's timer was set to until it ran, in picoseconds.
    pub wakes_ps: Vec<u64>,
    /// What happened how often.
    pub counts: Counts,
    /// What the engine counted.
    pub stats: Stats,
    /// Events of the run.
    pub events: u64,
}

impl Findings {
    /// The span that so many thousandths of the maxima of all CPUs and intervals did not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize, figure: fn(&Maxima) -> u64) -> f64 {
        quantile_ns(self.maxima.iter().flatten().map(figure), per_mille)
    }

    /// How many of the longest spans took from so many milliseconds to less than so many.
    pub fn count_ms(&self, from_ms: u64, to_ms: u64) -> usize {
        let ps = |ms: u64| ms * 1_000_000_000;
        let spans = self.maxima.iter().flatten().map(|maxima| maxima.all_ps);
        spans
            .filter(|span| (ps(from_ms)..ps(to_ms)).contains(span))
            .count()
    }

    /// The median of each CPU's maxima, in nanoseconds.
    pub fn medians_ns(&self, figure: fn(&Maxima) -> u64) -> Vec<f64> {
        let median = |maxima: &Vec<Maxima>| quantile_ns(maxima.iter().map(figure), 500);
        self.maxima.iter().map(median).collect()
    }

    /// The wake-up latency that so many thousandths did not exceed, in nanoseconds.
    pub fn wake_quantile_ns(&self, per_mille: usize) -> f64 {
        quantile_ns(self.wakes_ps.iter().copied(), per_mille)
    }
}

fn quantile_ns(values_ps: impl Iterator<Item = u64>, per_mille: usize) -> f64 {
    quantile(&values_ps.collect::<Vec<_>>(), per_mille) as f64 / 1000.0
}
