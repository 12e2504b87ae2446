//! A quarter of the CPUs runs user code and is to be left alone; the others map and unmap stacks of kernel threads, and one of them posts to all and changes text.

use std::cell::{Cell, RefCell};

use shootdown::calls::CallData;
use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{
    AddressSpace, Capacity, CpuId, FlushRange, FlushScope, FreedTables, PageSize, Platform, Policy,
    Shootdown, watch::Stats,
};

use crate::machine::{
    Context, Engine, Machine, PLATFORM, SimPlatform, context, kernel_root_at, root_at,
};
use crate::timed::{Activity, Costs, Timed, Translation};
use crate::workload::engine::with_close_size;

const SECOND_PS: u64 = 1_000_000_000_000;
/// Everybody is where it is to be.
const SETTLE_PS: u64 = 10_000_000_000;
/// Between two unmappings of a stack by one of the others, in the mean; one of them posts after each.
const BETWEEN_PS: u64 = 20_000_000_000;
/// That one changes text after so many unmappings, as x86 has it: a breakpoint, the rest, the first byte.
const UNMAPPINGS_A_CHANGE: usize = 5;
const SERIALISED_A_CHANGE: usize = 3;
/// A stack of 16 KiB and its guard, in units of 4 KiB.
const STACK_PAGES: usize = 5;
const FIRST_STACK: usize = 0x10_0000;
/// What a quiet CPU's program uses.
const WORKING_SET: usize = 64;
const FIRST_USER: usize = 0x1000;

/// How CPUs that run user code are left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftAlone {
    /// Not at all.
    Not,
    /// They are quiet.
    Quiet,
    /// Likewise, and a thread of their process unmaps a page after each stack.
    QuietOwn,
}

impl LeftAlone {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Not, Self::Quiet, Self::QuietOwn];

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Not => "interrupted",
            Self::Quiet => "quiet",
            Self::QuietOwn => "quiet+own",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Quiet {
    /// CPUs; the last quarter, at least one, runs user code.
    pub cpus: usize,
    /// How those are left alone.
    pub left_alone: LeftAlone,
    /// System calls of each of those a second, in the mean.
    pub calls_per_s: u64,
    /// What things cost.
    pub costs: Costs,
    /// For how long.
    pub span_ps: u64,
}

/// What was measured.
#[derive(Clone, Default, Debug)]
pub struct Quieted {
    /// How long each flush of a stack took.
    pub flushes: Vec<u64>,
    /// What each CPU did with interrupts.
    pub activities: Vec<Activity>,
    /// Interrupts of user code; the others come to the kernel.
    pub user_ipis: u64,
    /// What the engine counted on all CPUs.
    pub stats: Stats,
    /// System calls of the CPUs that run user code.
    pub calls: u64,
    /// After how many of them all of the program's translations were gone.
    pub drops: u64,
    /// What `leave_quiet` and `enter_quiet` took in them, together.
    pub passages_ps: u64,
    /// And the walks for the program's translations afterwards.
    pub refills_ps: u64,
    /// Uses of a stack that had been unmapped.
    pub stale: u64,
}

impl Quiet {
    /// What is done, and how often: assumed.
    pub const LOAD: &str = "assumed: each CPU in kernel mode unmaps 50 stacks a second, of four pages and a guard, and uses the same addresses again; \
        CPU 0 posts to all others after each of its stacks, and\nafter each fifth has all serialise three times; a CPU in user mode uses 64 pages";

    /// How many run user code.
    pub fn quiet_cpus(&self) -> usize {
        (self.cpus / 4).max(1)
    }

    /// Measures it.
    pub fn run(&self) -> Quieted {
        with_close_size!(self.cpus, run_sized(self))
    }
}

/// A leaf entry, on a line of its own.
#[repr(align(64))]
struct Page {
    entry: AtomicU64,
    /// Frames below this one must not be reached any more.
    oldest_frame: Cell<u64>,
}

struct World<'a, C: Capacity> {
    case: &'a Quiet,
    engine: &'a Shootdown<SimPlatform<C>>,
    /// Of the CPUs that run user code, and of the others.
    spaces: [Box<AddressSpace<C>>; 2],
    stacks: Vec<Page>,
    working_set: Vec<Page>,
    posts: Vec<&'static CallData<fn(CpuId)>>,
    is_in_user_mode: Vec<Cell<bool>>,
    result: RefCell<Quieted>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(case: &Quiet) -> Quieted {
    let engine = Engine::<C>::new(case.cpus);
    engine.set_policy(Policy::BEST);
    let page = |_| Page {
        entry: AtomicU64::new(1),
        oldest_frame: Cell::new(1),
    };
    let pages = |count| (0..count).map(page).collect();
    let post = |_| -> &'static CallData<fn(CpuId)> {
        Box::leak(Box::new(CallData::new((|_| ()) as fn(CpuId))))
    };
    let world = World {
        case,
        engine: &engine,
        spaces: [1, 2].map(|root| Box::new(AddressSpace::new(&engine, root_at(root)))),
        stacks: pages(case.cpus - case.quiet_cpus()),
        working_set: pages(WORKING_SET),
        posts: (0..case.cpus).map(post).collect(),
        is_in_user_mode: vec![Cell::new(false); case.cpus],
        result: RefCell::default(),
    };
    let model = Timed::new(case.cpus, case.costs.clone());
    let machine = Machine::timed(model, || {
        let is_in_user_mode = world.is_in_user_mode[context().cpu()].get();
        world.result.borrow_mut().user_ipis += u64::from(is_in_user_mode);
        let was_quiet = engine.control().leave_quiet();
        engine.handle_ipi();
        if was_quiet {
            world.enter();
        }
    });
    machine.run_each(case.left_alone.name(), |cpu, context| {
        engine.online();
        let runs_user_code = cpu >= world.stacks.len();
        let is_of_them = runs_user_code || (cpu == 0 && case.left_alone == LeftAlone::QuietOwn);
        let space = &world.spaces[usize::from(!is_of_them)];
        engine.switch_to(None, space);
        match runs_user_code {
            true => world.run_user_code(context, cpu),
            false => world.unmap_stacks(context, cpu),
        }
        engine.switch_away(space, kernel_root_at(0));
    });
    world.result.into_inner()
}

impl<C: Capacity> World<'_, C> {
    fn ends_ps(&self) -> u64 {
        SETTLE_PS + self.case.span_ps
    }

    /// The end of each way out.
    fn enter(&self) {
        if self.case.left_alone != LeftAlone::Not {
            // SAFETY: 1. user code, and its accesses, use nothing of the kernel; all ways in are the interrupt and `run_user_code`, which begin with `leave_quiet`. 2. there is no text.
            unsafe { self.engine.control().enter_quiet() };
        }
    }

    fn run_user_code(&self, context: Context<'_>, cpu: usize) {
        let mut random = fastrand::Rng::with_seed(cpu as u64);
        self.use_working_set(context);
        // Beyond the end, so that nobody comes back just then.
        let until_ps = self.ends_ps() + SETTLE_PS;
        while context.now_ps() < until_ps {
            let state = PLATFORM.irq_save();
            let returned_ps = context.now_ps();
            self.enter();
            let mut passage_ps = context.now_ps() - returned_ps;
            self.is_in_user_mode[cpu].set(true);
            // SAFETY: 1. saved above.
            unsafe { PLATFORM.irq_restore(state) };
            let user_ps = match self.case.calls_per_s {
                0 => u64::MAX,
                calls => random.u64(SECOND_PS / 2..SECOND_PS * 3 / 2) / calls,
            };
            context.work(user_ps.min(until_ps.saturating_sub(returned_ps)));
            let state = PLATFORM.irq_save();
            self.is_in_user_mode[cpu].set(false);
            let called_ps = context.now_ps();
            self.engine.control().leave_quiet();
            passage_ps += context.now_ps() - called_ps;
            let (has_dropped, refill_ps) = self.use_working_set(context);
            // SAFETY: 1. saved above.
            unsafe { PLATFORM.irq_restore(state) };
            context.work(self.case.costs.syscall_ps);
            let is_stale = self.uses_stale(context, random.usize(..self.stacks.len()));
            let mut result = self.result.borrow_mut();
            result.stale += u64::from(is_stale);
            if (SETTLE_PS..self.ends_ps()).contains(&called_ps) {
                result.calls += 1;
                result.drops += u64::from(has_dropped);
                result.passages_ps += passage_ps;
                result.refills_ps += refill_ps;
            }
        }
    }

    /// Whether its translations were gone, and for how long it waits for them.
    fn use_working_set(&self, context: Context<'_>) -> (bool, u64) {
        let began_ps = context.now_ps();
        let touch = |(at, page): (usize, &Page)| {
            let found = context.touch((FIRST_USER + at) as u64, page.entry.as_core());
            !matches!(found, Translation::Cached(_))
        };
        let missing = self.working_set.iter().enumerate().map(touch);
        let missing = missing.filter(|it| *it).count();
        (missing == WORKING_SET, context.now_ps() - began_ps)
    }

    fn unmap_stacks(&self, context: Context<'_>, cpu: usize) {
        let mut random = fastrand::Rng::with_seed(cpu as u64);
        context.work(SETTLE_PS);
        let read = || {
            let of = |cpu| context.timed(|timed| timed.activity(cpu));
            let activities: Vec<Activity> = (0..self.case.cpus).map(of).collect();
            (activities, self.engine.watch().total_stats())
        };
        let before = (cpu == 0).then(read);
        for turn in 1.. {
            let left_ps = self.ends_ps().saturating_sub(context.now_ps());
            context.work(left_ps.min(random.u64(BETWEEN_PS / 2..BETWEEN_PS * 3 / 2)));
            let began_ps = context.now_ps();
            if began_ps >= self.ends_ps() {
                break;
            }
            self.flush_stack(cpu);
            let took_ps = context.now_ps() - began_ps;
            let is_stale = self.uses_stale(context, cpu);
            let mut result = self.result.borrow_mut();
            result.flushes.push(took_ps);
            result.stale += u64::from(is_stale);
            drop(result);
            if cpu == 0 {
                self.disturb_all(turn);
            }
        }
        if let Some((before, stats_before)) = before {
            let (after, stats) = read();
            let mut result = self.result.borrow_mut();
            result.activities = after.into_iter().zip(before).map(|(a, b)| a - b).collect();
            result.stats = stats.since(&stats_before);
        }
    }

    /// A thread has ended; the next one gets the same addresses and another frame.
    fn flush_stack(&self, stack: usize) {
        let page = &self.stacks[stack];
        page.entry.swap(0, Ordering::AcqRel);
        let start = (FIRST_STACK + stack * STACK_PAGES) << 12;
        let range = FlushRange::pages(start, STACK_PAGES, PageSize::SIZE_4K);
        self.engine
            .flush(FlushScope::Kernel, range, FreedTables::No);
        page.oldest_frame.set(page.oldest_frame.get() + 1);
        page.entry.store(page.oldest_frame.get(), Ordering::Release);
    }

    fn disturb_all(&self, turn: usize) {
        let control = self.engine.control();
        for (cpu, data) in self.posts.iter().enumerate().skip(1) {
            // Busy: it has still to run the last one.
            _ = control.post_deferrable(CpuId::new(cpu as u32), data);
        }
        if turn.is_multiple_of(UNMAPPINGS_A_CHANGE) {
            let all = self.engine.ready_cpus();
            (0..SERIALISED_A_CHANGE).for_each(|_| control.serialise(&all).wait());
        }
        if self.case.left_alone == LeftAlone::QuietOwn {
            let page = FlushRange::pages((FIRST_USER - 1) << 12, 1, PageSize::SIZE_4K);
            self.engine.flush(&*self.spaces[0], page, FreedTables::No);
        }
    }

    fn uses_stale(&self, context: Context<'_>, stack: usize) -> bool {
        let page = &self.stacks[stack];
        let oldest_frame = page.oldest_frame.get();
        let number = FIRST_STACK + stack * STACK_PAGES;
        let found = context.touch(number as u64, page.entry.as_core());
        matches!(found, Translation::Cached(frame) if frame < oldest_frame)
    }
}
