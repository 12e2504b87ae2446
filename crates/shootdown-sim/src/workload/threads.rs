//! Threads that discard memory of their own beside each other, or in a part of their operations memory that all read.
//!
//! Thread n on CPU n repeats: system call, the page-table change, the flush, then a write to the page, which faults. Each has a page in a region of its own. Whose flushes
//! these are is the row: in a tracked space each CPU has a root of its own; in one that is not, and with other kernels' calls, all CPUs of the space are asked.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::atomic::Ordering as CoreOrdering;

use shootdown::reach::{ReachRoot, Region};
use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{
    AddressSpace, Capacity, CpuId, CpuMask, FlushRange, FreedTables, LocalFlush, PageSize,
    Platform, watch::Stats,
};
use shootdown_peers::Peer;

use crate::machine::{Context, Engine, PLATFORM, kernel_root_at, root_at};
use crate::timed::{Activity, Costs, Timed, Translation};
use crate::workload::engine::with_close_size;
use crate::workload::fairness::quantile;
use crate::workload::{Built, Means};

/// Pages of a region: what a top-level entry translates.
const REGION_PAGES: usize = 1 << 27;
/// Threads begin within this time.
const MOST_BEFORE_PS: u64 = 10_000_000;
/// Each does so many before any of them counts.
const WARM_UP: usize = 8;
const SPACE: u64 = 1;

/// One row.
#[derive(Clone, Debug)]
pub struct Threads {
    /// Threads, each on a CPU of its own.
    pub cpus: usize,
    /// Whose flushes.
    pub peer: Peer,
    /// Whether the engine's space is tracked.
    pub is_tracked: bool,
    /// Whether page tables are changed under one lock of the space.
    pub has_lock: bool,
    /// Of a hundred operations so many discard the page that all threads read, once an operation each.
    pub shared_percent: u64,
    /// The machine.
    pub costs: Costs,
    /// Decides when they begin, and which operations are shared.
    pub seed: u64,
    /// Operations of each thread that are measured.
    pub operations: usize,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Discarded {
    /// How long each operation took, in picoseconds.
    pub samples_ps: Vec<u64>,
    /// Operations of all threads in a microsecond.
    pub per_us: f64,
    /// Operations of all that the activity is of.
    pub operations: u64,
    /// What all CPUs did.
    pub activity: Activity,
    /// What the engine counted, if it is its.
    pub stats: Stats,
    /// Reads through a translation that had to be gone.
    pub stale: u64,
}

impl Discarded {
    /// The time that so many thousandths of the operations did not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize) -> f64 {
        quantile(&self.samples_ps, per_mille) as f64 / 1000.0
    }
}

impl Threads {
    /// Measures it.
    ///
    /// # Panics
    /// Without threads or operations, or when the calls fail.
    pub fn run(&self) -> Discarded {
        assert!(self.cpus > 0 && self.operations > 0);
        with_close_size!(self.cpus, run_sized(self))
    }
}

/// A page's entry, on a line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

fn lines(count: usize) -> Vec<Line> {
    (0..count).map(|_| Line(AtomicU64::new(0))).collect()
}

struct World<'a, C: Capacity> {
    row: &'a Threads,
    calls: &'a Built<C>,
    space: Option<&'a AddressSpace<C>>,
    all: CpuMask<C>,
    /// The entry of the shared page, and of each thread's own.
    entries: &'a [Line],
    lock: &'a Lock,
    next_frame: Cell<u64>,
    /// Frames of the shared page below this one must not be reached any more.
    oldest_frame: Cell<u64>,
    /// Threads that are warm, and that have done what is measured.
    warm: Cell<usize>,
    done: Cell<usize>,
    operations: Cell<u64>,
    before: Cell<(Activity, Stats)>,
    found: RefCell<Discarded>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Threads) -> Discarded {
    let calls = Built::<C>::new(row.peer, row.cpus);
    let regions: Vec<Region<C>> = (0..=row.cpus).map(|_| Region::new()).collect();
    let space = match &calls {
        Built::Ours(engine) => Some(Box::new(AddressSpace::new(engine, root_at(SPACE)))),
        Built::Peer(_) => None,
    };
    if let (Built::Ours(engine), Some(space), true) = (&calls, &space, row.is_tracked) {
        // SAFETY: 1. the space is dropped before them.
        unsafe { engine.user_memory().reach().track(space, &regions) };
    }
    let entries = lines(row.cpus + 1);
    let lock = Lock::new(row.cpus);
    let world = World {
        row,
        calls: &calls,
        space: space.as_deref(),
        all: (0..row.cpus as u32).map(CpuId::new).collect(),
        entries: &entries,
        lock: &lock,
        next_frame: Cell::new(1),
        oldest_frame: Cell::new(0),
        warm: Cell::new(0),
        done: Cell::new(0),
        operations: Cell::new(0),
        before: Cell::default(),
        found: RefCell::new(Discarded {
            samples_ps: Vec::new(),
            per_us: 0.0,
            operations: 0,
            activity: Activity::default(),
            stats: Stats::default(),
            stale: 0,
        }),
    };
    let timed = Timed::with_seed(row.cpus, row.costs.clone(), row.seed);
    let machine = calls.machine(timed, Means::Interrupts, true);
    machine.run_each("threads beside each other", |cpu, context| {
        world.calls.online();
        match (world.calls, world.space) {
            (Built::Ours(engine), Some(space)) => world.member(engine, space, cpu, context),
            _ => world.thread(cpu, context, None),
        }
    });
    world.found.into_inner()
}

/// A CPU's own root, and what takes a region.
type Own<'a, C> = (&'a Engine<C>, &'a AddressSpace<C>, Pin<&'a ReachRoot<C>>);

impl<C: Capacity> World<'_, C> {
    /// A thread of the engine's space.
    fn member(
        &self,
        engine: &Engine<C>,
        space: &AddressSpace<C>,
        cpu: usize,
        context: Context<'_>,
    ) {
        if !self.row.is_tracked {
            engine.switch_to(None, space);
            self.thread(cpu, context, None);
            return engine.switch_away(space, kernel_root_at(0));
        }
        let reach = engine.user_memory().reach();
        let table = root_at(SPACE + 1 + cpu as u64);
        let mut own = Box::pin(ReachRoot::new(engine, space, CpuId::new(cpu as u32), table));
        reach.switch_to(None, space, own.as_ref());
        self.thread(cpu, context, Some((engine, space, own.as_ref())));
        engine.switch_away(space, kernel_root_at(0));
        // SAFETY: 1. this CPU has left it.
        unsafe { reach.retire(space, own.as_mut()) };
    }

    fn thread(&self, cpu: usize, context: Context<'_>, own: Option<Own<'_, C>>) {
        let row = self.row;
        let mut random = fastrand::Rng::with_seed(row.seed ^ (cpu as u64) << 32);
        context.work(random.u64(..MOST_BEFORE_PS));
        let mut operation = || {
            let is_shared = random.u64(..100) < row.shared_percent;
            self.touch(context, own, 0);
            let started_ps = context.now_ps();
            self.discard(context, own, if is_shared { 0 } else { cpu + 1 });
            context.now_ps() - started_ps
        };
        (0..WARM_UP).for_each(|_| _ = operation());
        self.warm.set(self.warm.get() + 1);
        while self.warm.get() < row.cpus {
            operation();
        }
        if self.operations.get() == 0 {
            self.before.set(self.counts(context));
        }
        let started_ps = context.now_ps();
        for _ in 0..row.operations {
            let took_ps = operation();
            self.operations.set(self.operations.get() + 1);
            self.found.borrow_mut().samples_ps.push(took_ps);
        }
        let mut found = self.found.borrow_mut();
        found.per_us += row.operations as f64 * 1e6 / (context.now_ps() - started_ps) as f64;
        drop(found);
        self.done.set(self.done.get() + 1);
        if self.done.get() == row.cpus {
            let mut found = self.found.borrow_mut();
            found.operations = self.operations.get();
            let (before, now) = (self.before.get(), self.counts(context));
            found.activity = now.0 - before.0;
            found.stats = now.1.since(&before.1);
        }
        while self.done.get() < row.cpus {
            operation();
            self.operations.set(self.operations.get() + 1);
        }
    }

    fn counts(&self, context: Context<'_>) -> (Activity, Stats) {
        let stats = match self.calls {
            Built::Ours(engine) => engine.watch().total_stats(),
            Built::Peer(_) => Stats::default(),
        };
        (context.timed(|timed| timed.activities()), stats)
    }

    /// madvise of a page, and a write to it.
    fn discard(&self, context: Context<'_>, own: Option<Own<'_, C>>, page: usize) {
        let costs = &self.row.costs;
        context.work(costs.syscall_ps / 2 + costs.madvise_ps);
        let entry = &self.entries[page].0;
        let frame = self.locked(|| entry.swap(0, Ordering::AcqRel));
        let range = FlushRange::pages(page_number(page) << 12, 1, PageSize::SIZE_4K);
        match (self.calls, self.space) {
            (Built::Ours(engine), Some(space)) => engine.flush(space, range, FreedTables::No),
            _ => {
                let flush = LocalFlush::Pages(range, FreedTables::No);
                self.calls
                    .calls()
                    .call(&self.all, &|_| PLATFORM.local_flush(flush));
            }
        }
        if page == 0 {
            self.oldest_frame
                .set(self.oldest_frame.get().max(frame + 1));
        }
        context.work(costs.syscall_ps - costs.syscall_ps / 2);
        self.touch(context, own, page);
    }

    /// An access to a page by the running CPU, again and again until it does not fault: its root may not translate the region, or there may be no page.
    fn touch(&self, context: Context<'_>, own: Option<Own<'_, C>>, page: usize) {
        let (costs, entry) = (&self.row.costs, &self.entries[page].0);
        loop {
            if let Some((engine, space, root)) = own
                && !context.timed(|timed| timed.tops.contains(&(root.root(), page)))
            {
                context.work(costs.fault_ps);
                let reach = engine.user_memory().reach();
                reach.take(space, root, page_number(page) << 12);
                continue;
            }
            let oldest_frame = self.oldest_frame.get();
            match context.touch(page_number(page) as u64, entry.as_core()) {
                Translation::Cached(frame) => {
                    let is_stale = page == 0 && frame < oldest_frame;
                    self.found.borrow_mut().stale += u64::from(is_stale);
                    return;
                }
                Translation::Walked(_) => return,
                Translation::Fault => {}
            }
            context.work(costs.fault_ps + costs.zero_page_ps);
            self.locked(|| {
                // What it costs; nobody comes between the look and the store, so that frames are entered in order.
                entry.fetch_or(0, Ordering::AcqRel);
                let core = entry.as_core();
                if core.load(CoreOrdering::Relaxed) == 0 {
                    core.store(self.next_frame.get(), CoreOrdering::Relaxed);
                    self.next_frame.set(self.next_frame.get() + 1);
                }
            });
        }
    }

    /// A change of the page tables.
    fn locked<R>(&self, change: impl FnOnce() -> R) -> R {
        match self.row.has_lock {
            true => self.lock.during(change),
            false => change(),
        }
    }
}

fn page_number(page: usize) -> usize {
    page * REGION_PAGES + 1
}

/// A lock whose waiters form a queue, each at a line of its own, as those of Linux do: it costs a line that moves, another for each that waits, and what it is held for.
struct Lock {
    tail: Line,
    /// Whose turn is its number, by number modulo their count.
    turns: Vec<Line>,
}

impl Lock {
    fn new(cpus: usize) -> Self {
        Self {
            tail: Line(AtomicU64::new(0)),
            turns: lines(cpus),
        }
    }

    fn during<R>(&self, change: impl FnOnce() -> R) -> R {
        let turn = self.tail.0.fetch_add(1, Ordering::AcqRel);
        let place = |turn: u64| &self.turns[turn as usize % self.turns.len()].0;
        while place(turn).load(Ordering::Acquire) < turn {
            PLATFORM.relax();
        }
        let result = change();
        place(turn + 1).store(turn + 1, Ordering::Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::Preset;

    fn row(peer: Peer, is_tracked: bool, shared_percent: u64) -> Discarded {
        let row = Threads {
            cpus: 6,
            peer,
            is_tracked,
            has_lock: true,
            shared_percent,
            costs: Preset::named("large-server").unwrap().costs(),
            seed: 3,
            operations: 40,
        };
        row.run()
    }

    #[test]
    fn threads_with_regions_of_their_own_interrupt_nobody() {
        let found = row(Peer::Shootdown, true, 0);
        assert_eq!((found.activity.ipis_sent, found.stale), (0, 0));
        for (peer, is_tracked, shared_percent) in [
            (Peer::Shootdown, true, 100),
            (Peer::Shootdown, false, 0),
            (Peer::CallQueues, false, 10),
        ] {
            let found = row(peer, is_tracked, shared_percent);
            assert!(found.activity.ipis_sent > 0);
            assert_eq!(found.stale, 0, "{peer}");
        }
    }
}
