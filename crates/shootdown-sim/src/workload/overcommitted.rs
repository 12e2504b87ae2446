//! [`Telling`]: the rows of `overcommit`; [`Overcommitted`]: what they measured.

use shootdown::{Policy, watch::Stats};

use crate::timed::HostCounts;
use crate::workload::fairness::quantile;

/// A call that takes this long has waited for a turn.
const LATE_PS: u64 = 500_000_000;

/// How others are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Telling {
    /// All by interrupt, under the engine's best policy.
    Interrupts,
    /// As Linux does under KVM: virtual CPUs that do not run are flushed before they run again, the rest is interrupted; under the
    /// policy that is nearest to Linux.
    Kvm,
    /// The same under the engine's best policy.
    Best,
}

impl Telling {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Interrupts, Self::Kvm, Self::Best];

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Kvm => "kvm",
            Self::Best => "best",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The engine's policy.
    pub fn policy(self) -> Policy {
        match self {
            Self::Kvm => Policy::PUBLISHED,
            Self::Interrupts | Self::Best => Policy::BEST,
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// From begin to end.
    pub whole_ps: u64,
    /// How much of that the initiator's virtual CPU was on its processor.
    pub ran_ps: u64,
}

/// What a row measured.
#[derive(Clone, Debug)]
pub struct Overcommitted {
    /// The calls.
    pub samples: Vec<Sample>,
    /// What the engine counted meanwhile.
    pub stats: Stats,
    /// What the hypervisor did meanwhile.
    pub host: HostCounts,
    /// Calls that ended meanwhile, to share the counts among.
    pub calls: u64,
    /// Accesses through a translation that had to be gone.
    pub stale: u64,
}

impl Overcommitted {
    /// The time that so many thousandths of the calls did not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize) -> f64 {
        let all: Vec<u64> = self.samples.iter().map(|it| it.whole_ps).collect();
        quantile(&all, per_mille) as f64 / 1000.0
    }

    /// The part of the calls that waited for somebody's turn; and that in which it was the initiator's own.
    pub fn late(&self) -> (f64, f64) {
        let share = |is_meant: fn(&Sample) -> bool| {
            let count = self.samples.iter().filter(|it| is_meant(it)).count();
            count as f64 / self.samples.len().max(1) as f64
        };
        let late = share(|it| it.whole_ps >= LATE_PS);
        (late, share(|it| it.whole_ps - it.ran_ps >= LATE_PS))
    }

    /// A count, a call.
    pub fn per_call(&self, count: u64) -> f64 {
        count as f64 / self.calls.max(1) as f64
    }
}
