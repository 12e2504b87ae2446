//! Reclaim: pages of many spaces are unmapped, and freed when no CPU translates to them.

use std::cell::{Cell, RefCell};

use shootdown::reclaim::Reclaim as Gathered;
use shootdown::{
    AddressSpace, Capacity, FlushRanges, FreedTables, KernelRoot, Policy, Shootdown, watch::Stats,
};

use crate::machine::{Context, Engine, Machine, SimPlatform, kernel_root_at, root_at};
use crate::timed::{Costs, Timed};
use crate::workload::engine::with_close_size;
use crate::workload::fairness::quantile;

/// Everybody is where it is to be.
const SETTLE_PS: u64 = 1_000_000_000;
/// Between two batches.
const PAUSE_PS: u64 = 50_000_000;
/// What the programs compute between two moments at which they may be interrupted.
const WORK_PS: u64 = 1_000_000;
/// What it takes to unmap a page.
const UNMAP_PS: u64 = 50_000;
const KERNEL_ROOT: KernelRoot = kernel_root_at(0);

/// How the pages are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReclaimedBy {
    /// A request for each space, with all its pages.
    Flushes,
    /// One request for all.
    Reclaim,
    /// The same under the policy with everything that was published.
    Published,
}

impl ReclaimedBy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Flushes, Self::Reclaim, Self::Published];

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flushes => "flushes",
            Self::Reclaim => "reclaim",
            Self::Published => "published",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Reclaim {
    /// CPUs; the first one reclaims, and has no space loaded, the others run programs, each in one of the spaces.
    pub cpus: usize,
    /// Spaces that have pages among those that are unmapped.
    pub spaces: usize,
    /// Pages of a batch, of one space after the other.
    pub pages: usize,
    /// How they are flushed.
    pub by: ReclaimedBy,
    /// What things cost.
    pub costs: Costs,
    /// How many batches.
    pub batches: usize,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Reclaimed {
    /// How long each batch took.
    pub samples: Vec<u64>,
    /// What the engine counted on all CPUs.
    pub stats: Stats,
}

impl Reclaimed {
    /// The time that so many thousandths of the batches did not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize) -> f64 {
        quantile(&self.samples, per_mille) as f64 / 1000.0
    }
}

impl Reclaim {
    /// Measures it.
    pub fn run(&self) -> Reclaimed {
        with_close_size!(self.cpus, run_sized(self))
    }
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(case: &Reclaim) -> Reclaimed {
    let engine = Engine::<C>::new(case.cpus);
    engine.set_policy(match case.by {
        ReclaimedBy::Published => Policy::PUBLISHED,
        ReclaimedBy::Flushes | ReclaimedBy::Reclaim => Policy::BEST,
    });
    let spaces: Vec<_> = (1..=case.spaces as u64)
        .map(|root| Box::new(AddressSpace::new(&engine, root_at(root))))
        .collect();
    let is_over = Cell::new(false);
    let measured = RefCell::new((Vec::new(), Stats::default()));
    let model = Timed::new(case.cpus, case.costs.clone());
    let machine = Machine::timed(model, || engine.handle_ipi());
    machine.run_each(case.by.name(), |cpu, context| {
        engine.online();
        if cpu == 0 {
            *measured.borrow_mut() = reclaim_often(context, &engine, &spaces, case);
            return is_over.set(true);
        }
        let space = &spaces[cpu % case.spaces];
        engine.switch_to(None, space);
        while !is_over.get() {
            context.work(WORK_PS);
        }
        engine.switch_away(space, KERNEL_ROOT);
    });
    let (samples, stats) = measured.into_inner();
    Reclaimed { samples, stats }
}

/// Once to settle, then as often as is asked for.
fn reclaim_often<C: Capacity>(
    context: Context<'_>,
    engine: &Shootdown<SimPlatform<C>>,
    spaces: &[Box<AddressSpace<C>>],
    case: &Reclaim,
) -> (Vec<u64>, Stats) {
    context.work(SETTLE_PS);
    reclaim(context, engine, spaces, case);
    let before = engine.watch().total_stats();
    let batch = |_| {
        context.work(PAUSE_PS);
        let began_ps = context.now_ps();
        reclaim(context, engine, spaces, case);
        context.now_ps() - began_ps
    };
    let samples = (0..case.batches).map(batch).collect();
    (samples, engine.watch().total_stats().since(&before))
}

fn reclaim<C: Capacity>(
    context: Context<'_>,
    engine: &Shootdown<SimPlatform<C>>,
    spaces: &[Box<AddressSpace<C>>],
    case: &Reclaim,
) {
    let mut gathered = Gathered::new(engine, ());
    for (index, space) in spaces.iter().enumerate().take(case.pages) {
        let pages = (case.pages - index).div_ceil(case.spaces);
        context.work(UNMAP_PS * pages as u64);
        match case.by {
            ReclaimedBy::Flushes => engine.flush(&**space, FlushRanges::WHOLE, FreedTables::No),
            ReclaimedBy::Reclaim | ReclaimedBy::Published => gathered.add(space),
        }
    }
    gathered.submit().wait();
}
