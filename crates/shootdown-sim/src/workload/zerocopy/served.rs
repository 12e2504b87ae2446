//! [`Served`]: what a row of table T2 measured, and [`PUBLISHED_ZEROCOPY`]: what its authors did.

use shootdown::watch::Stats;

use crate::timed::Activity;
use crate::workload::fairness::quantile;
use crate::workload::zerocopy::Mapping;

/// One row of the published table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PublishedZerocopy {
    /// Client threads.
    pub threads: usize,
    /// Operations a second with an ordinary mapping, and with the flag.
    pub per_s: [f64; 2],
    /// The time of a call as the clients measured it, in microseconds, likewise.
    pub call_us: [f64; 2],
}

const fn published(threads: usize, per_s: [f64; 2], call_us: [f64; 2]) -> PublishedZerocopy {
    PublishedZerocopy {
        threads,
        per_s,
        call_us,
    }
}

/// What the authors of T2 measured on 40 cores, copies of 4 KiB.
pub const PUBLISHED_ZEROCOPY: [PublishedZerocopy; 9] = [
    published(1, [185_391.0, 200_799.0], [4.9, 4.6]),
    published(2, [197_993.0, 314_321.0], [9.6, 5.9]),
    published(4, [310_597.0, 565_574.0], [12.1, 6.6]),
    published(8, [546_702.0, 1_113_138.0], [13.8, 6.6]),
    published(12, [641_728.0, 1_598_451.0], [17.2, 6.8]),
    published(18, [744_750.0, 1_648_689.0], [22.2, 7.8]),
    published(24, [790_805.0, 1_702_285.0], [28.3, 8.0]),
    published(36, [849_763.0, 1_783_346.0], [38.9, 13.4]),
    published(48, [792_000.0, 1_741_873.0], [44.6, 17.4]),
];

impl PublishedZerocopy {
    /// The row with so many threads.
    pub fn with_threads(threads: usize) -> Option<&'static Self> {
        PUBLISHED_ZEROCOPY.iter().find(|row| row.threads == threads)
    }

    /// Operations a second of the authors' system that maps like this; none had windows.
    pub fn per_s(&self, mapping: Mapping) -> Option<f64> {
        match mapping {
            Mapping::Ordinary => Some(self.per_s[0]),
            Mapping::Flagged => Some(self.per_s[1]),
            Mapping::Windowed => None,
        }
    }
}

/// What a row measured, on all CPUs together, while all of them were at work.
#[derive(Clone, Debug)]
pub struct Served {
    /// Operations.
    pub operations: u64,
    /// In this time.
    pub whole_ps: u64,
    /// The time of each call, as its client sees it.
    pub calls_ps: Vec<u64>,
    /// What the engine counted.
    pub stats: Stats,
    /// Interrupts, and the time they took.
    pub activity: Activity,
    /// Cache lines that moved.
    pub lines: u64,
    /// Accesses through a translation that had to be gone.
    pub stale: u64,
    /// Events of the whole run.
    pub events: u64,
}

impl Served {
    /// Operations a second.
    pub fn per_s(&self) -> f64 {
        self.operations as f64 * 1e12 / self.whole_ps as f64
    }

    /// A count, an operation.
    pub fn per_operation(&self, count: u64) -> f64 {
        count as f64 / self.operations as f64
    }

    /// The time that so many thousandths of the calls did not exceed, in microseconds.
    pub fn call_quantile_us(&self, per_mille: usize) -> f64 {
        quantile(&self.calls_ps, per_mille) as f64 / 1e6
    }

    /// The mean time of a call, in microseconds.
    pub fn call_mean_us(&self) -> f64 {
        self.calls_ps.iter().sum::<u64>() as f64 / self.calls_ps.len() as f64 / 1e6
    }
}
