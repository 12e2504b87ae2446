//! Tables that are freed and reused while other CPUs read them without their lock.

use std::cell::{Cell, RefCell};

use shootdown::{
    AddressSpace, Capacity, CpuMask, FlushRange, FreedTables, KernelRoot, PageSize, Platform,
    Policy, Shootdown, watch::Stats,
};

use crate::machine::{Context, Engine, Machine, PLATFORM, SimPlatform, kernel_root_at, root_at};
use crate::timed::{Costs, Fabric, Timed};
use crate::workload::engine::with_close_size;
use crate::workload::fairness::quantile;

/// Everybody is where it is to be.
const SETTLE_PS: u64 = 1_000_000_000;
/// Between two collapses.
const PAUSE_PS: u64 = 50_000_000;
/// What reading the entries takes, and between two walks, in the mean.
const READ_PS: u64 = 200_000;
const BETWEEN_PS: u64 = 1_000_000;
const KERNEL_ROOT: KernelRoot = kernel_root_at(0);

/// How walkers are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitedFor {
    /// The flush comes by interrupt, and walkers leave it unanswered.
    ByInterrupt,
    /// The flush is an instruction, and then all CPUs that have the space loaded are interrupted (upstream's `tlb_remove_table_sync`).
    BySync,
    /// The flush is an instruction, and CPUs that say that they walk are interrupted.
    ByMark,
}

impl WaitedFor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ByInterrupt, Self::BySync, Self::ByMark];

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ByInterrupt => "interrupts",
            Self::BySync => "sync",
            Self::ByMark => "marks",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Collapse {
    /// CPUs that have the space loaded; the first one collapses.
    pub cpus: usize,
    /// How many of the others walk.
    pub walkers: usize,
    /// How they are waited for.
    pub waited_for: WaitedFor,
    /// What things cost.
    pub costs: Costs,
    /// How often.
    pub collapses: usize,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Collapsed {
    /// How long each collapse took.
    pub samples: Vec<u64>,
    /// What the engine counted on all CPUs.
    pub stats: Stats,
    /// Walks, and how long they took together.
    pub walks: (u64, u64),
}

impl Collapsed {
    /// The time that so many thousandths of the collapses did not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize) -> f64 {
        quantile(&self.samples, per_mille) as f64 / 1000.0
    }
}

impl Collapse {
    /// Measures it.
    pub fn run(&self) -> Collapsed {
        with_close_size!(self.cpus, run_sized(self))
    }
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(case: &Collapse) -> Collapsed {
    let engine = Engine::<C>::new(case.cpus);
    engine.set_policy(Policy::BEST.with_global_tags_from(1));
    let space = Box::new(AddressSpace::new(&engine, root_at(1)));
    let mut model = Timed::new(case.cpus, case.costs.clone());
    if case.waited_for != WaitedFor::ByInterrupt {
        model = model.with_broadcasts(Fabric::Serial);
    }
    let (is_over, walks) = (Cell::new(false), Cell::new((0, 0)));
    let measured = RefCell::new((Vec::new(), Stats::default()));
    let machine = Machine::timed(model, || engine.handle_ipi());
    machine.run_each(case.waited_for.name(), |cpu, context| {
        engine.online();
        engine.switch_to(None, &space);
        if cpu == 0 {
            *measured.borrow_mut() = collapse_often(context, &engine, &space, case);
            is_over.set(true);
        }
        let mut random = fastrand::Rng::with_seed(cpu as u64);
        while !is_over.get() {
            if cpu <= case.walkers {
                let began_ps = context.now_ps();
                walk(context, &engine, &space, case.waited_for);
                let (count, time_ps) = walks.get();
                walks.set((count + 1, time_ps + context.now_ps() - began_ps));
            }
            context.work(random.u64(..2 * BETWEEN_PS));
        }
        engine.switch_away(&space, KERNEL_ROOT);
    });
    let (samples, stats) = measured.into_inner();
    Collapsed {
        samples,
        stats,
        walks: walks.get(),
    }
}

/// Once to settle, then as often as is asked for.
fn collapse_often<C: Capacity>(
    context: Context<'_>,
    engine: &Shootdown<SimPlatform<C>>,
    space: &AddressSpace<C>,
    case: &Collapse,
) -> (Vec<u64>, Stats) {
    let range = FlushRange::pages(1 << 12, 1, PageSize::SIZE_4K);
    context.work(SETTLE_PS);
    // The space gets its tag, where there are any.
    (0..3).for_each(|_| engine.flush(space, range, FreedTables::No));
    context.work(SETTLE_PS);
    let before = engine.watch().total_stats();
    let collapse = |_| {
        context.work(PAUSE_PS);
        let began_ps = context.now_ps();
        match case.waited_for {
            WaitedFor::BySync => {
                engine.flush(space, range, FreedTables::No);
                let all: CpuMask<C> = space.cpus();
                engine.control().kick(&all).wait();
            }
            WaitedFor::ByInterrupt | WaitedFor::ByMark => {
                engine.flush(space, range, FreedTables::Yes);
            }
        }
        context.now_ps() - began_ps
    };
    let samples = (0..case.collapses).map(collapse).collect();
    (samples, engine.watch().total_stats().since(&before))
}

/// Reads entries, with a lock on the way whose spin loop polls.
fn walk<C: Capacity>(
    context: Context<'_>,
    engine: &Shootdown<SimPlatform<C>>,
    space: &AddressSpace<C>,
    waited_for: WaitedFor,
) {
    let read = || {
        context.work(READ_PS / 2);
        engine.poll();
        context.work(READ_PS / 2);
    };
    if waited_for != WaitedFor::BySync {
        let section = engine.user_memory().walk(space);
        read();
        return drop(section);
    }
    // Interrupts off are the section, and a lock that polls would end it.
    let state = PLATFORM.irq_save();
    context.work(READ_PS);
    // SAFETY: 1. saved above.
    unsafe { PLATFORM.irq_restore(state) };
}
