//! T1's second table: threads write at random places of mapped files and sync them, as sysbench does.
//!
//! All threads take events from one list: so many writes, then a sync of each file, again and again. The first write to a page since it was last synced
//! faults. A sync takes the right to write away from the dirty pages of its file, and has every CPU forget it: one page after the other, as Linux does
//! (`page_mkclean`), or all pages in one request, as the reference kernel does. What an event takes besides is one figure.

use std::cell::{Cell, RefCell};

use shootdown::{
    AddressSpace, Capacity, FlushRange, FreedTables, PageSize, Policy, Shootdown, watch::Stats,
};

use crate::machine::{Context, Engine, Machine, SimPlatform, kernel_root_at, root_at};
use crate::timed::{Costs, Timed};
use crate::workload::engine::with_size;

/// What the authors of T1 measured with four threads: the policy, and a thread's events in ten seconds, in thousands.
pub const PUBLISHED_FILE_WRITES: [(&str, f64); 2] = [("before", 575.0), ("published", 607.0)];

/// Events that are taken before anything counts: every thread is where it is to be.
const WARM_UP: usize = 500;
/// Number of the first page of the mapping.
const FIRST_PAGE: usize = 0x7f00_0000;

/// One row of the table.
#[derive(Clone, Debug)]
pub struct FileWrites {
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Pages of a write.
    pub pages: usize,
    /// Files of the mapping, and pages of each.
    pub files: (usize, usize),
    /// Writes before the files are synced.
    pub writes: usize,
    /// Whether a sync flushes all pages in one request.
    pub is_one_flush: bool,
    /// How flushes are carried out.
    pub policy: Policy,
    /// The machine.
    pub costs: Costs,
    /// What an event takes besides faults, system calls and flushes.
    pub event_ps: u64,
    /// Decides where writes go.
    pub seed: u64,
    /// Events that are measured.
    pub events: usize,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct FilesWritten {
    /// How long each event took its thread.
    pub samples_ps: Vec<u64>,
    /// From the first measured event to the last.
    pub elapsed_ps: u64,
    /// Syncs among the events.
    pub syncs: u64,
    /// Pages that were dirty at a sync.
    pub dirty: u64,
    /// What the engine counted on all CPUs.
    pub stats: Stats,
}

impl FileWrites {
    /// Measures it.
    ///
    /// # Panics
    /// With no thread, or too many of them, or when the engine fails.
    pub fn run(&self) -> FilesWritten {
        with_size!(self.threads, run_sized(self))
    }
}

struct World<'a, C: Capacity> {
    case: &'a FileWrites,
    engine: &'a Shootdown<SimPlatform<C>>,
    space: &'a AddressSpace<C>,
    /// Whether each page was written to since its file was last synced.
    dirty: RefCell<Vec<bool>>,
    /// The number of the next event.
    next: Cell<usize>,
    random: Cell<u64>,
    found: RefCell<FilesWritten>,
    before: Cell<Option<(u64, Stats)>>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(case: &FileWrites) -> FilesWritten {
    let engine = Engine::<C>::new(case.threads);
    engine.set_policy(case.policy);
    let space = Box::new(AddressSpace::new(&engine, root_at(1)));
    let (files, pages) = case.files;
    let world = World {
        case,
        engine: &engine,
        space: &space,
        dirty: RefCell::new(vec![false; files * pages]),
        next: Cell::new(0),
        random: Cell::new(case.seed | 1),
        found: RefCell::new(FilesWritten {
            samples_ps: Vec::with_capacity(case.events),
            elapsed_ps: 0,
            syncs: 0,
            dirty: 0,
            stats: Stats::default(),
        }),
        before: Cell::new(None),
    };
    let model = Timed::with_seed(case.threads, case.costs.clone(), case.seed);
    let machine = Machine::timed(model, || engine.handle_ipi());
    machine.run_each("the engine under writes to files", |_, context| {
        engine.online();
        engine.switch_to(None, &space);
        world.thread(context);
        engine.switch_away(&space, kernel_root_at(0));
    });
    world.found.into_inner()
}

impl<C: Capacity> World<'_, C> {
    fn thread(&self, context: Context<'_>) {
        loop {
            let event = self.next.replace(self.next.get() + 1);
            if event == WARM_UP {
                let stats = self.engine.watch().total_stats();
                self.before.set(Some((context.now_ps(), stats)));
            }
            if event == WARM_UP + self.case.events {
                self.finish(context);
            }
            if event >= WARM_UP + self.case.events {
                return;
            }
            let started_ps = context.now_ps();
            let (files, _) = self.case.files;
            let is_counted = event >= WARM_UP;
            match (event % (self.case.writes + files)).checked_sub(self.case.writes) {
                None => self.write(context),
                Some(file) => self.sync(context, file, is_counted),
            }
            if is_counted {
                let took_ps = context.now_ps() - started_ps;
                self.found.borrow_mut().samples_ps.push(took_ps);
            }
        }
    }

    fn finish(&self, context: Context<'_>) {
        let Some((started_ps, stats)) = self.before.take() else {
            return;
        };
        let mut found = self.found.borrow_mut();
        found.elapsed_ps = context.now_ps() - started_ps;
        found.stats = self.engine.watch().total_stats().since(&stats);
    }

    /// A write of some pages at a random place.
    fn write(&self, context: Context<'_>) {
        let pages = self.dirty.borrow().len();
        let first = self.below(pages / self.case.pages) * self.case.pages;
        for page in first..first + self.case.pages {
            let was_dirty = std::mem::replace(&mut self.dirty.borrow_mut()[page], true);
            if !was_dirty {
                context.work(self.case.costs.fault_ps);
            }
        }
        context.work(self.case.event_ps);
    }

    /// A sync of a file.
    fn sync(&self, context: Context<'_>, file: usize, is_counted: bool) {
        let costs = &self.case.costs;
        context.work(costs.syscall_ps / 2);
        let pages = file * self.case.files.1..(file + 1) * self.case.files.1;
        let mut found = Vec::new();
        for page in pages {
            if std::mem::take(&mut self.dirty.borrow_mut()[page]) {
                found.push(page);
            }
        }
        if is_counted {
            let mut counts = self.found.borrow_mut();
            counts.syncs += 1;
            counts.dirty += found.len() as u64;
        }
        let flush = |first: usize, pages: usize| {
            let start = (FIRST_PAGE + first) << 12;
            let range = FlushRange::pages(start, pages, PageSize::SIZE_4K);
            self.engine.flush(self.space, range, FreedTables::No);
        };
        match (self.case.is_one_flush, &found[..]) {
            (true, [first, ..]) => flush(*first, found[found.len() - 1] + 1 - first),
            _ => found.iter().for_each(|&page| flush(page, 1)),
        }
        context.work(costs.syscall_ps - costs.syscall_ps / 2 + self.case.event_ps);
    }

    /// A number below `end`, at random (xorshift).
    fn below(&self, end: usize) -> usize {
        let mut state = self.random.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.random.set(state);
        (state >> 11) as usize % end.max(1)
    }
}
