//! Table T1: one thread drops pages and touches them again, the others spin in user mode.
//!
//! Thread 0 on CPU 0 repeats: system call, the memory manager's work, the page-table change, the engine's flush,
//! return, then a write to each page, which walks, faults, zeroes a page and enters it. Thread n spins on CPU n
//! with the space loaded. What is measured is the time of one iteration on thread 0.

use std::cell::Cell;

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{
    AddressSpace, Capacity, CpuId, FlushRange, FreedTables, PageSize, Platform, Policy, Shootdown,
    watch::Stats,
};

use crate::machine::{Context, Engine, Machine, SimPlatform, kernel_root_at, root_at};
use crate::timed::{Costs, Timed, TlbCounts, Translation};
use crate::workload::Measured;
use crate::workload::engine::with_size;

/// What the authors of T1 measured: policy, threads, nanoseconds an iteration with one page.
pub const PUBLISHED: [(&str, usize, f64); 6] = [
    ("before", 1, 661.0),
    ("before", 2, 1436.0),
    ("before", 4, 1571.0),
    ("published", 1, 663.0),
    ("published", 2, 923.0),
    ("published", 4, 1070.0),
];

/// Iterations after which every line and every translation is where it is at the start of each.
const WARM_UP: usize = 32;
/// Iterations that check the others' translations, after the measured ones.
const CHECKS: usize = 4;
/// Long enough for every target to be back in user mode.
const SETTLE_PS: u64 = 50_000_000;
/// Number of the first page of the region, in units of 4 KiB.
const FIRST_PAGE: usize = 0x7f00_0000;
/// Pages of the region at most: one page table.
const MOST_PAGES: usize = 512;

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Madvise {
    /// Threads of the program, each on a CPU of its own; at most 4096.
    pub threads: usize,
    /// Pages a flush, 1 to 512.
    pub pages: usize,
    /// How flushes are carried out.
    pub policy: Policy,
    /// The machine.
    pub costs: Costs,
    /// Decides when within a turn of their spin loop interrupts find the others.
    pub seed: u64,
    /// Iterations that are measured.
    pub iterations: usize,
}

impl Madvise {
    /// Runs the row.
    ///
    /// # Panics
    /// With no thread, too many of them or of pages, no iteration, or when the engine fails.
    pub fn run(&self) -> Measured {
        assert!((1..=MOST_PAGES).contains(&self.pages) && self.iterations > 0);
        with_size!(self.threads, run_sized(self))
    }
}

/// The leaf page table of the region, on lines of its own.
#[repr(align(4096))]
struct Table([AtomicU64; MOST_PAGES]);

/// What the threads of a run share.
struct World<'a, C: Capacity> {
    row: &'a Madvise,
    engine: &'a Shootdown<SimPlatform<C>>,
    space: &'a AddressSpace<C>,
    table: &'a Table,
    /// Frames below this one must not be reached any more.
    oldest_frame: Cell<u64>,
    /// Whether the others touch the pages whenever they are interrupted.
    checks: Cell<bool>,
    stale: Cell<u64>,
    is_over: Cell<bool>,
}

/// One iteration's times.
#[derive(Clone, Copy)]
struct Sample {
    whole_ps: u64,
    call_ps: u64,
}

#[derive(Clone, Copy)]
struct Counts {
    stats: Stats,
    translations: TlbCounts,
    lines: u64,
}

// Not inlined: the frame of the largest size has room for an engine, which the others need not pay for.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Madvise) -> Measured {
    let engine = Engine::<C>::new(row.threads);
    engine.set_policy(row.policy);
    let space = Box::new(AddressSpace::new(&engine, root_at(1)));
    let table = Box::new(Table([const { AtomicU64::new(0) }; MOST_PAGES]));
    let world = World {
        row,
        engine: &engine,
        space: &space,
        table: &table,
        oldest_frame: Cell::new(0),
        checks: Cell::new(false),
        stale: Cell::new(0),
        is_over: Cell::new(false),
    };
    let model = Timed::with_seed(row.threads, row.costs.clone(), row.seed);
    let machine = Machine::timed(model, || engine.handle_ipi());
    let outcome = Cell::new(None);
    let state = machine.run_each("the engine under madvise", |cpu, context| match cpu {
        0 => outcome.set(Some(world.initiator(context))),
        _ => world.spinner(context),
    });
    let (samples, counts) = outcome.take().expect("the initiator has finished");
    Measured {
        samples_ps: samples.iter().map(|sample| sample.whole_ps).collect(),
        calls_ps: samples.iter().map(|sample| sample.call_ps).collect(),
        stats: counts.stats,
        translations: counts.translations,
        lines: counts.lines,
        stale: world.stale.get(),
        events: state.events,
    }
}

impl<C: Capacity> World<'_, C> {
    fn spinner(&self, context: Context<'_>) {
        self.engine.online();
        self.engine.switch_to(None, self.space);
        while !self.is_over.get() {
            context.wait_for_interrupt();
            if self.checks.get() {
                self.touch_as_bystander(context);
            }
        }
        self.engine.switch_away(self.space, kernel_root_at(0));
    }

    fn initiator(&self, context: Context<'_>) -> (Vec<Sample>, Counts) {
        self.engine.online();
        self.engine.switch_to(None, self.space);
        while self.space.cpus().len() < self.row.threads {
            context.work(SETTLE_PS);
        }
        for _ in 0..WARM_UP {
            self.iteration(context);
        }
        let before = self.counts(context);
        let samples = (0..self.row.iterations)
            .map(|_| self.iteration(context))
            .collect();
        let after = self.counts(context);
        self.check(context);
        self.is_over.set(true);
        self.wake_others();
        self.engine.switch_away(self.space, kernel_root_at(0));
        (samples, after.since(&before))
    }

    fn iteration(&self, context: Context<'_>) -> Sample {
        let (started_ps, costs) = (context.now_ps(), &self.row.costs);
        context.work(costs.syscall_ps / 2 + costs.madvise_ps);
        for entry in self.entries() {
            entry.swap(0, Ordering::AcqRel);
        }
        let range = FlushRange::pages(FIRST_PAGE << 12, self.row.pages, PageSize::SIZE_4K);
        self.engine.flush(self.space, range, FreedTables::No);
        self.oldest_frame.set(self.oldest_frame.get() + 1);
        context.work(costs.syscall_ps - costs.syscall_ps / 2);
        let call_ps = context.now_ps() - started_ps;
        for (index, entry) in self.entries().iter().enumerate() {
            self.touch(context, index, entry);
        }
        Sample {
            whole_ps: context.now_ps() - started_ps,
            call_ps,
        }
    }

    /// A write to a page that has just been dropped.
    fn touch(&self, context: Context<'_>, index: usize, entry: &AtomicU64) {
        let page = (FIRST_PAGE + index) as u64;
        if context.touch(page, entry.as_core()) != Translation::Fault {
            self.stale.set(self.stale.get() + 1);
        }
        context.work(self.row.costs.fault_ps + self.row.costs.zero_page_ps);
        entry.store(self.oldest_frame.get(), Ordering::Release);
        context.touch(page, entry.as_core());
    }

    /// Lets every other thread cache the pages, drops them, and lets them look again.
    fn check(&self, context: Context<'_>) {
        self.checks.set(true);
        for _ in 0..CHECKS {
            self.wake_others();
            context.work(SETTLE_PS);
            self.iteration(context);
            context.work(SETTLE_PS);
        }
        self.wake_others();
        context.work(SETTLE_PS);
    }

    fn touch_as_bystander(&self, context: Context<'_>) {
        for (index, entry) in self.entries().iter().enumerate() {
            let oldest = self.oldest_frame.get();
            let page = (FIRST_PAGE + index) as u64;
            if let Translation::Cached(frame) = context.touch(page, entry.as_core())
                && frame < oldest
            {
                self.stale.set(self.stale.get() + 1);
            }
        }
    }

    fn wake_others(&self) {
        for cpu in 1..self.row.threads {
            let sent = self.engine.platform().send_ipi(CpuId::new(cpu as u32));
            assert_eq!(sent, Ok(()), "the simulated platform refuses nothing");
        }
    }

    fn entries(&self) -> &[AtomicU64] {
        &self.table.0[..self.row.pages]
    }

    fn counts(&self, context: Context<'_>) -> Counts {
        Counts {
            stats: self.engine.watch().total_stats(),
            translations: context.timed(|timed| timed.tlbs[0].counts()),
            lines: context.timed(|timed| timed.lines.transfers().sum()),
        }
    }
}

impl Counts {
    fn since(&self, before: &Self) -> Self {
        Self {
            stats: self.stats.since(&before.stats),
            translations: self.translations.since(&before.translations),
            lines: self.lines - before.lines,
        }
    }
}
