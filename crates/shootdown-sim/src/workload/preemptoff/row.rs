//! [`Preemptoff`]: one row of the table.

use shootdown::{Capacity, Policy};

use crate::machine::{Engine, Machine};
use crate::timed::{Costs, Timed};
use crate::workload::engine::with_size;
use crate::workload::preemptoff::kernel::Kernel;
use crate::workload::preemptoff::{Findings, Load};

/// Which kernel is around the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// Waits with preemption off, flushes and calls alike.
    Before,
    /// Waits preemptibly (T3 as published). What that version does and our engine does not is a model here: each CPU has
    /// one set of call data, so that a second call on the same CPU spins for them with preemption off.
    Published,
    /// Waits preemptibly, and after its locks are released.
    Best,
}

impl System {
    /// The system with the name of a policy.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "before" => Some(Self::Before),
            "published" => Some(Self::Published),
            "best" => Some(Self::Best),
            _ => None,
        }
    }

    /// The engine's policy under it.
    pub fn policy(self) -> Policy {
        match self {
            Self::Before => Policy::BEFORE,
            Self::Published => Policy::PUBLISHED,
            Self::Best => Policy::BEST,
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Preemptoff {
    /// CPUs of the machine; at most 4096.
    pub cpus: usize,
    /// The kernel around the engine.
    pub system: System,
    /// What is done.
    pub load: Load,
    /// The machine.
    pub costs: Costs,
    /// Draws what is done when.
    pub seed: u64,
    /// Intervals that are measured, after one that is not.
    pub intervals: usize,
}

impl Preemptoff {
    /// Runs the row.
    ///
    /// # Panics
    /// With fewer than two CPUs, or when the engine fails.
    pub fn run(&self) -> Findings {
        assert!(self.cpus >= 2 && self.intervals > 0);
        with_size!(self.cpus, run_sized(self))
    }
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Preemptoff) -> Findings {
    let engine = Engine::<C>::new(row.cpus);
    engine.set_policy(row.system.policy());
    let mut costs = row.costs.clone();
    costs.relax_ps = (row.load.spin_turn_ns * 1000.0) as u64;
    let kernel = Kernel::new(row, &engine);
    let model = Timed::with_seed(row.cpus, costs, row.seed);
    let machine = Machine::timed(model, || engine.handle_ipi());
    let machine = machine.with_host(&kernel, kernel.tasks() - row.cpus);
    let state = machine.run_each("the engine under preemptoff", |task, context| {
        kernel.run(context, task);
    });
    let mut findings = kernel.into_findings();
    findings.stats = engine.watch().total_stats();
    findings.events = state.events;
    findings
}
