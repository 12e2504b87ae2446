//! Virtual CPUs that share processors: threads drop a page of their own, with a flush of every CPU that has the space, and touch it again.
//!
//! Between two calls of madvise a thread is in user mode, where it looks at another thread's page now and then. A call is measured by the
//! initiator's clock from begin to end, with all the time in which the hypervisor has its virtual CPU wait for a turn.

use std::cell::{Cell, RefCell};

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{
    AddressSpace, Capacity, FlushRange, FreedTables, PageSize, Shootdown, watch::Stats,
};

use crate::machine::{Context, Engine, Machine, SimPlatform, kernel_root_at, root_at};
use crate::timed::{Costs, HostCounts, Timed, Translation};
use crate::workload::engine::with_size;
use crate::workload::overcommitted::{Overcommitted, Sample, Telling};

/// What a thread does in user mode between two calls.
const USER_PS: u64 = 100_000_000;
/// The row begins when every virtual CPU has had a turn or two.
const WARM_UP_PS: u64 = 10_000_000_000;
/// Number of the first page of the region, in units of 4 KiB.
const FIRST_PAGE: usize = 0x7f00_0000;

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Overcommit {
    /// Virtual CPUs, each with a thread.
    pub cpus: usize,
    /// How many of the threads call madvise; the others stay in user mode.
    pub callers: usize,
    /// How others are told.
    pub telling: Telling,
    /// The machine; its processors are shared.
    pub costs: Costs,
    /// Decides when turns end.
    pub seed: u64,
    /// How long the row takes, in picoseconds.
    pub span_ps: u64,
}

impl Overcommit {
    /// Runs the row.
    ///
    /// # Panics
    /// Without a caller, on a machine whose processors are not shared, or when the engine fails.
    pub fn run(&self) -> Overcommitted {
        assert!((1..=self.cpus).contains(&self.callers));
        with_size!(self.cpus, run_sized(self))
    }
}

/// The page of one thread.
#[repr(align(64))]
struct Page {
    /// The leaf entry.
    entry: AtomicU64,
    /// Frames below this one must not be reached any more.
    oldest_frame: Cell<u64>,
}

#[derive(Clone, Copy)]
struct Reading {
    stats: Stats,
    host: HostCounts,
    calls: u64,
}

struct World<'a, C: Capacity> {
    row: &'a Overcommit,
    engine: &'a Shootdown<SimPlatform<C>>,
    space: &'a AddressSpace<C>,
    pages: Vec<Page>,
    samples: RefCell<Vec<Sample>>,
    calls: Cell<u64>,
    stale: Cell<u64>,
    /// At the begin and the end of the row.
    readings: RefCell<Vec<Reading>>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Overcommit) -> Overcommitted {
    let engine = Engine::<C>::new(row.cpus);
    engine.set_policy(row.telling.policy());
    let space = Box::new(AddressSpace::new(&engine, root_at(1)));
    let page = |_| Page {
        entry: AtomicU64::new(1),
        oldest_frame: Cell::new(1),
    };
    let world = World {
        row,
        engine: &engine,
        space: &space,
        pages: (0..row.cpus).map(page).collect(),
        samples: RefCell::default(),
        calls: Cell::new(0),
        stale: Cell::new(0),
        readings: RefCell::default(),
    };
    let mut model = Timed::with_seed(row.cpus, row.costs.clone(), row.seed).without_idle_turns();
    if row.telling != Telling::Interrupts {
        model = model.with_flush_before_entry();
    }
    let machine = Machine::timed(model, || engine.handle_ipi());
    machine.run_each(row.telling.name(), |cpu, context| {
        world.thread(cpu, context)
    });
    world.outcome()
}

impl<C: Capacity> World<'_, C> {
    fn thread(&self, cpu: usize, context: Context<'_>) {
        self.engine.online();
        self.engine.switch_to(None, self.space);
        let mut random = fastrand::Rng::with_seed(self.row.seed ^ (cpu as u64) << 32);
        let ends_ps = WARM_UP_PS + self.row.span_ps;
        while context.now_ps() < ends_ps {
            if cpu == 0 && context.now_ps() >= WARM_UP_PS && self.readings.borrow().is_empty() {
                self.read(context);
            }
            // Not in step with others.
            context.work(random.u64(USER_PS / 2..USER_PS * 3 / 2));
            self.look(context, random.usize(..self.row.cpus));
            if cpu < self.row.callers {
                self.operation(context, cpu);
            }
        }
        if cpu == 0 {
            self.read(context);
        }
        self.engine.switch_away(self.space, kernel_root_at(0));
    }

    fn read(&self, context: Context<'_>) {
        self.readings.borrow_mut().push(Reading {
            stats: self.engine.watch().total_stats(),
            host: context.timed(|timed| timed.host_counts()),
            calls: self.calls.get(),
        });
    }

    fn operation(&self, context: Context<'_>, cpu: usize) {
        let (started_ps, costs) = (context.now_ps(), &self.row.costs);
        context.work(costs.syscall_ps / 2 + costs.madvise_ps);
        let page = &self.pages[cpu];
        page.entry.swap(0, Ordering::AcqRel);
        let range = FlushRange::pages((FIRST_PAGE + cpu) << 12, 1, PageSize::SIZE_4K);
        self.engine.flush(self.space, range, FreedTables::No);
        page.oldest_frame.set(page.oldest_frame.get() + 1);
        context.work(costs.syscall_ps - costs.syscall_ps / 2);
        let now_ps = context.now_ps();
        let ran_ps = context.timed(|timed| timed.ran_ps(cpu, started_ps, now_ps));
        self.calls.set(self.calls.get() + 1);
        if started_ps >= WARM_UP_PS {
            let whole_ps = now_ps - started_ps;
            let sample = Sample { whole_ps, ran_ps };
            self.samples.borrow_mut().push(sample);
        }
        context.work(costs.fault_ps + costs.zero_page_ps);
        page.entry.store(page.oldest_frame.get(), Ordering::Release);
        self.look(context, cpu);
    }

    /// Touches a page; a page that is not there is left alone.
    fn look(&self, context: Context<'_>, index: usize) {
        let page = &self.pages[index];
        let oldest_frame = page.oldest_frame.get();
        let found = context.touch((FIRST_PAGE + index) as u64, page.entry.as_core());
        if matches!(found, Translation::Cached(frame) if frame < oldest_frame) {
            self.stale.set(self.stale.get() + 1);
        }
    }

    fn outcome(self) -> Overcommitted {
        let readings = self.readings.into_inner();
        let (before, after) = (&readings[0], &readings[readings.len() - 1]);
        Overcommitted {
            samples: self.samples.into_inner(),
            stats: after.stats.since(&before.stats),
            host: after.host - before.host,
            calls: after.calls - before.calls,
            stale: self.stale.get(),
        }
    }
}
