//! Table T4: processes on one CPU hand over to each other, each touching pages of its own in between.
//!
//! One iteration is one turn: a process touches its pages, wakes the next one through an eventfd and blocks on its own; the
//! kernel switches, under the engine, from one space to the other. With two processes and more somebody is always runnable, so the CPU is never idle
//! and never lazy. What the kernel does besides is a price, the same under every policy. What differs is how a root is
//! loaded and what the TLB, which is simulated page by page, has left of a space when its turn comes again.

use std::cell::Cell;

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{AddressSpace, FlushRange, FreedTables, PageSize, Policy};

use crate::machine::{Context, Engine, Machine, kernel_root_at, root_at};
use crate::timed::{Costs, Timed, Translation};
use crate::workload::{Measured, Order};

/// What the authors of T4 measured with two processes: policy, pages, nanoseconds an iteration. Their kernel without
/// PCID is `before`, with PCID `published`.
pub const PUBLISHED_PINGPONG: [(&str, usize, f64); 4] = [
    ("before", 0, 1330.0),
    ("before", 512, 6200.0),
    ("published", 0, 1220.0),
    ("published", 512, 1800.0),
];

/// Turns of each space after which the TLB and the tags are as they are at the start of every round.
const WARM_UP_ROUNDS: usize = 4;
/// The least number of turns before anything is measured.
const WARM_UP_TURNS: usize = 64;
/// Where the pages of a forked process are, in units of 4 KiB.
const FIRST_PAGE: u64 = 0x7f_0000_0000 >> 12;
/// Where those of the kernel are.
const FIRST_KERNEL_PAGE: u64 = 0xffff_8880_0000_0000 >> 12;
/// Bits of a page number that are random where regions are placed at random (Linux, x86-64: `mmap_rnd_bits`).
const PLACEMENT_BITS: u32 = 28;
/// Pages of a space at most: one page table's worth.
const MOST_PAGES: usize = 512;
/// Names that others take in between, at most, where names are scattered.
const MOST_SKIPPED: u64 = 64;

/// Where the spaces have their pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// All at the same addresses, as after a fork: they compete for the same sets of the TLB. What such a bench does.
    Same,
    /// Each at an address of its own, as programs that were started separately.
    Random,
}

/// Which names the spaces have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// One after the other: nobody else was started meanwhile.
    InSequence,
    /// With gaps: others came and went.
    Scattered,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Pingpong {
    /// Processes. With one its CPU becomes idle in between, and lazy.
    pub spaces: usize,
    /// Pages that each touches in its turn, at most 512.
    pub pages: usize,
    /// Which tags are used.
    pub policy: Policy,
    /// The machine.
    pub costs: Costs,
    /// Where the pages are.
    pub placement: Placement,
    /// Whose turn is next.
    pub order: Order,
    /// What the spaces are called.
    pub names: Names,
    /// Page-table isolation: user mode has roots of its own.
    pub isolation: bool,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// Iterations that are measured.
    pub iterations: usize,
}

impl Pingpong {
    /// Forks of one program that take turns.
    pub fn new(spaces: usize, pages: usize, policy: Policy, costs: &Costs) -> Self {
        Self {
            spaces,
            pages,
            policy,
            costs: costs.clone(),
            placement: Placement::Same,
            order: Order::RoundRobin,
            names: Names::InSequence,
            isolation: false,
            seed: 1,
            iterations: 20 * spaces,
        }
    }

    /// Runs the row.
    ///
    /// # Panics
    /// With no space, too many pages, no iteration, or when the engine fails.
    pub fn run(&self) -> Measured {
        assert!(self.spaces > 0 && self.pages <= MOST_PAGES && self.iterations > 0);
        let engine = Engine::new(1);
        engine.set_policy(self.policy);
        let world = World::new(self, &engine);
        let mut model = Timed::with_seed(1, self.costs.clone(), self.seed);
        if self.isolation {
            model = model.with_split_tags();
        }
        let machine = Machine::timed(model, || engine.handle_ipi());
        let outcome = Cell::new(None);
        let state = machine.run_each("the engine under pingpong", |_, context| {
            outcome.set(Some(world.program(context)));
        });
        let measured = outcome.take().expect("the program has finished");
        Measured {
            events: state.events,
            ..measured
        }
    }

    /// The names of the spaces in the order of their turns: those before the measured ones, and the measured ones.
    pub fn names(&self) -> (Vec<u64>, Vec<u64>) {
        let engine = Engine::new(1);
        let world = World::new(self, &engine);
        let name = |process: &usize| world.processes[*process].space.id().as_u64();
        let mut names: Vec<u64> = world.turns.iter().map(name).collect();
        let measured = names.split_off(names.len() - self.iterations);
        (names, measured)
    }

    /// What a turn takes at least if a space has its tag up to date whenever its turn comes, and the TLB replaced
    /// its entries as well as one that knows the future: `empty_turn_ns` is a turn without pages. In a round of
    /// distinct pages no more of them hit than the TLB has entries.
    pub fn least_ns(&self, empty_turn_ns: f64) -> f64 {
        let shape = self.costs.tlb;
        let hits =
            |(sets, ways)| ((sets * ways) as f64 / self.spaces as f64).min(self.pages as f64);
        let first = hits(shape.first());
        let second = hits(shape.second()).min(self.pages as f64 - first);
        let walks = self.pages as f64 - first - second;
        let (hit_ps, step_ps) = (self.costs.tlb_l2_hit_ps, self.costs.walk_step_ps);
        empty_turn_ns + (second * hit_ps as f64 + walks * step_ps as f64) / 1000.0
    }
}

/// One process.
struct Process {
    space: AddressSpace<shootdown::Cpus<1>>,
    first_page: u64,
    /// The leaf entries of its pages; at least one, for the check.
    table: Box<[AtomicU64]>,
}

struct World<'a> {
    row: &'a Pingpong,
    engine: &'a Engine<shootdown::Cpus<1>>,
    processes: Vec<Process>,
    /// The leaf entries of the kernel's pages.
    kernel_table: Box<[AtomicU64]>,
    /// The order of all turns.
    turns: Vec<usize>,
    stale: Cell<u64>,
}

impl<'a> World<'a> {
    fn new(row: &'a Pingpong, engine: &'a Engine<shootdown::Cpus<1>>) -> Self {
        let mut random = fastrand::Rng::with_seed(row.seed);
        let processes = (0..row.spaces)
            .map(|index| {
                if row.names == Names::Scattered {
                    for _ in 0..random.u64(0..MOST_SKIPPED) {
                        drop(AddressSpace::new(engine, root_at(0)));
                    }
                }
                let offset = match row.placement {
                    Placement::Same => 0,
                    Placement::Random => random.u64(0..1 << PLACEMENT_BITS),
                };
                let frame = Self::frame(index);
                let entry = |_| AtomicU64::new(frame);
                Process {
                    space: AddressSpace::new(engine, root_at(index as u64 + 1)),
                    first_page: FIRST_PAGE + offset,
                    table: (0..row.pages.max(1)).map(entry).collect(),
                }
            })
            .collect();
        let warm_up = WARM_UP_TURNS.max(WARM_UP_ROUNDS * row.spaces);
        Self {
            row,
            engine,
            processes,
            kernel_table: (0..row.costs.kernel_pages)
                .map(|_| AtomicU64::new(Self::frame(row.spaces)))
                .collect(),
            turns: row
                .order
                .turns(row.spaces, warm_up + row.iterations, &mut random),
            stale: Cell::new(0),
        }
    }

    /// Every page of a space leads to the same frame, as to the zero page, but each space to one of its own: a
    /// translation of another space would be noticed.
    fn frame(index: usize) -> u64 {
        index as u64 + 1
    }

    fn program(&self, context: Context<'_>) -> Measured {
        let (warm_up, measured) = self.turns.split_at(self.turns.len() - self.row.iterations);
        let counts = || {
            (
                self.engine.watch().total_stats(),
                context.timed(|timed| timed.tlbs[0].counts()),
            )
        };
        self.engine.online();
        let mut current = warm_up[0];
        self.engine.switch_to(None, &self.processes[current].space);
        context.enter_user(self.engine);
        for next in &warm_up[1..] {
            self.turn(context, &mut current, *next);
        }
        let before = counts();
        let (samples_ps, calls_ps) = measured
            .iter()
            .map(|next| self.turn(context, &mut current, *next))
            .unzip();
        let after = counts();
        self.check(context, &mut current);
        context.enter_kernel();
        self.engine
            .switch_away(&self.processes[current].space, kernel_root_at(0));
        Measured {
            samples_ps,
            calls_ps,
            stats: after.0.since(&before.0),
            translations: after.1.since(&before.1),
            lines: 0,
            stale: self.stale.get(),
            events: 0,
        }
    }

    /// One process's turn, until the next one is back in user mode: the whole time, and that of the hand-over.
    fn turn(&self, context: Context<'_>, current: &mut usize, next: usize) -> (u64, u64) {
        let (started_ps, costs) = (context.now_ps(), &self.row.costs);
        for index in 0..self.row.pages {
            self.touch(context, *current, index, Self::frame(*current));
        }
        let touched_ps = context.now_ps();
        // Two system calls: the write that wakes the other, the read that blocks.
        self.in_kernel(context, || {
            context.work(2 * costs.syscall_ps + costs.wake_ps + costs.context_switch_ps);
        });
        self.switch(context, current, next);
        let ended_ps = context.now_ps();
        (ended_ps - started_ps, ended_ps - touched_ps)
    }

    fn switch(&self, context: Context<'_>, current: &mut usize, next: usize) {
        let (from, to) = (&self.processes[*current], &self.processes[next]);
        self.in_kernel(context, || {
            if self.row.spaces == 1 {
                let user_memory = self.engine.user_memory();
                user_memory.enter_lazy(&from.space, kernel_root_at(0));
            }
            self.engine.switch_to(Some(&from.space), &to.space);
        });
        *current = next;
    }

    /// A system call: the kernel reads its pages before the `work` and after it, when another space may be loaded.
    fn in_kernel(&self, context: Context<'_>, work: impl FnOnce()) {
        let read = || {
            for (page, entry) in (FIRST_KERNEL_PAGE..).zip(&self.kernel_table) {
                context.touch(page, entry.as_core());
            }
        };
        context.enter_kernel();
        read();
        work();
        read();
        context.enter_user(self.engine);
    }

    fn touch(&self, context: Context<'_>, process: usize, index: usize, expected: u64) {
        let process = &self.processes[process];
        let page = process.first_page + index as u64;
        let found = context.touch(page, process.table[index].as_core());
        if found != Translation::Cached(expected) && found != Translation::Walked(expected) {
            self.stale.set(self.stale.get() + 1);
        }
    }

    /// Every process's first page goes elsewhere while another process runs: with its tag kept until now, the old
    /// translation must be gone all the same when its turn comes again.
    fn check(&self, context: Context<'_>, current: &mut usize) {
        for index in 0..self.row.spaces {
            let other = (index + 1) % self.row.spaces;
            let (process, moved) = (&self.processes[index], Self::frame(index) + (1 << 32));
            self.switch(context, current, index);
            self.touch(context, index, 0, Self::frame(index));
            self.switch(context, current, other);
            process.table[0].store(moved, Ordering::Release);
            let range =
                FlushRange::pages((process.first_page as usize) << 12, 1, PageSize::SIZE_4K);
            let work = || self.engine.flush(&process.space, range, FreedTables::No);
            let flush = || self.in_kernel(context, work);
            flush();
            self.switch(context, current, index);
            self.touch(context, index, 0, moved);
            process.table[0].store(Self::frame(index), Ordering::Release);
            flush();
        }
    }
}
