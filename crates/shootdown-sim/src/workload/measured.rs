//! [`Measured`]: what a row of a table measured.

use shootdown::watch::Stats;

use crate::timed::TlbCounts;
use crate::workload::fairness::quantile;

/// What a row measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Each iteration, in the order of time, in picoseconds.
    pub samples_ps: Vec<u64>,
    /// What of each was not spent touching pages, in picoseconds: the system call (madvise), the hand-over
    /// (pingpong).
    pub calls_ps: Vec<u64>,
    /// What the engine counted meanwhile, on all CPUs.
    pub stats: Stats,
    /// What the TLB of CPU 0 counted meanwhile.
    pub translations: TlbCounts,
    /// Cache lines that moved meanwhile.
    pub lines: u64,
    /// Accesses through a translation that had to be gone.
    pub stale: u64,
    /// Events of the whole run.
    pub events: u64,
}

impl Measured {
    /// The time that so many thousandths of the iterations did not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize) -> f64 {
        quantile(&self.samples_ps, per_mille) as f64 / 1000.0
    }

    /// The same of the part that is not touches.
    pub fn call_quantile_ns(&self, per_mille: usize) -> f64 {
        quantile(&self.calls_ps, per_mille) as f64 / 1000.0
    }

    /// The median in nanoseconds.
    pub fn median_ns(&self) -> f64 {
        self.quantile_ns(500)
    }

    /// The mean in nanoseconds: the whole time by the number of iterations.
    pub fn mean_ns(&self) -> f64 {
        self.per_iteration(self.samples_ps.iter().sum()) / 1000.0
    }

    /// A count, an iteration.
    pub fn per_iteration(&self, count: u64) -> f64 {
        count as f64 / self.samples_ps.len() as f64
    }
}
