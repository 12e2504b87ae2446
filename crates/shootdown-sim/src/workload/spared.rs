//! Fewer interrupts: one flush whose targets are busy in user mode, idle, or in the kernel.

use std::cell::Cell;

use shootdown::{
    AddressSpace, Capacity, FlushRange, FreedTables, KernelRoot, PageSize, Policy, Shootdown,
};

use crate::machine::{Context, Engine, Machine, PLATFORM, SimPlatform, kernel_root_at, root_at};
use crate::timed::{Activity, Costs, Timed};
use crate::workload::engine::with_close_size;

/// Long enough for everybody to be where it is to be.
const SETTLE_PS: u64 = 1_000_000_000;
/// The flushes are over by then.
const STAY_PS: u64 = 4 * SETTLE_PS;
const KERNEL_ROOT: KernelRoot = kernel_root_at(0);

/// What the targets do meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Whereabouts {
    /// They run user code.
    User,
    /// They are idle, with the space still loaded (lazy mode).
    Idle,
    /// They are idle, use the space still, and poll for requests.
    Polling,
    /// They are in the kernel, and catch up before they use user memory again (deferral).
    Kernel,
}

impl Whereabouts {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::User, Self::Idle, Self::Polling, Self::Kernel];

    /// In words, for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "in user mode",
            Self::Idle => "idle (lazy)",
            Self::Polling => "idle, polling",
            Self::Kernel => "in the kernel (deferral)",
        }
    }
}

/// One flush of one page.
#[derive(Clone, Copy, Debug)]
pub struct Spared {
    /// On the initiator.
    pub time_ps: u64,
    /// What all CPUs did for it.
    pub activity: Activity,
    /// Cache lines that moved.
    pub lines: u64,
    /// On the first target, in the kernel: in and out without having missed anything.
    pub way_ps: u64,
    /// Out, after the flush.
    pub catch_up_ps: u64,
}

/// Flushes one page of a space that `targets` CPUs and the initiator have loaded, under [`Policy::BEST`] with deferral.
///
/// # Panics
/// When the engine fails.
pub fn spared(whereabouts: Whereabouts, targets: usize, costs: &Costs) -> Spared {
    with_close_size!(targets + 1, spared_sized(whereabouts, targets, costs))
}

// Not inlined: see `madvise`.
#[inline(never)]
fn spared_sized<C: Capacity>(whereabouts: Whereabouts, targets: usize, costs: &Costs) -> Spared {
    let engine = Engine::<C>::new(targets + 1);
    engine.set_policy(Policy::BEST.with_deferral(true));
    let space = Box::new(AddressSpace::new(&engine, root_at(1)));
    let (flushed, ways) = (Cell::new((0, Activity::default(), 0)), Cell::new((0, 0)));
    let model = Timed::new(targets + 1, costs.clone());
    let machine = Machine::timed(model, || engine.handle_ipi());
    machine.run_each(whereabouts.name(), |cpu, context| {
        engine.online();
        engine.switch_to(None, &space);
        if cpu == 0 {
            flushed.set(flush_twice(context, &engine, &space));
            engine.switch_away(&space, KERNEL_ROOT);
        } else {
            let way = stay(context, &engine, &space, whereabouts);
            if cpu == 1 {
                ways.set(way);
            }
        }
    });
    let (time_ps, activity, lines) = flushed.get();
    let (way_ps, catch_up_ps) = ways.get();
    Spared {
        time_ps,
        activity,
        lines,
        way_ps,
        catch_up_ps,
    }
}

/// The second one, which finds all lines where the first has left them.
fn flush_twice<C: Capacity>(
    context: Context<'_>,
    engine: &Shootdown<SimPlatform<C>>,
    space: &AddressSpace<C>,
) -> (u64, Activity, u64) {
    let counts = || context.timed(|timed| (timed.activities(), timed.lines.transfers().sum()));
    let flush = || {
        context.work(SETTLE_PS);
        let (before, started_ps) = (counts(), context.now_ps());
        let range = FlushRange::pages(1 << 12, 1, PageSize::SIZE_4K);
        engine.submit_flush(space, range, FreedTables::No).wait();
        let time_ps = context.now_ps() - started_ps;
        context.work(SETTLE_PS / 2);
        let after = counts();
        (time_ps, after.0 - before.0, after.1 - before.1)
    };
    flush();
    flush()
}

/// Returns what going into the kernel and out again takes without a flush, and going out after one.
fn stay<C: Capacity>(
    context: Context<'_>,
    engine: &Shootdown<SimPlatform<C>>,
    space: &AddressSpace<C>,
    whereabouts: Whereabouts,
) -> (u64, u64) {
    let mut ways = (0, 0);
    match whereabouts {
        Whereabouts::User => context.work(STAY_PS),
        Whereabouts::Idle => {
            engine.user_memory().enter_lazy(space, KERNEL_ROOT);
            context.work(STAY_PS);
            engine.switch_to(Some(space), space);
        }
        Whereabouts::Polling => {
            let ends_ps = context.now_ps() + STAY_PS;
            while context.now_ps() < ends_ps {
                engine.poll_idle(|idle| {
                    while !idle.has_work() && context.now_ps() < ends_ps {
                        shootdown::Platform::relax(&PLATFORM);
                    }
                });
            }
        }
        Whereabouts::Kernel => {
            let started_ps = context.now_ps();
            engine.user_memory().defer_flushes(space);
            engine.user_memory().catch_up(space);
            ways.0 = context.now_ps() - started_ps;
            engine.user_memory().defer_flushes(space);
            context.work(STAY_PS);
            let started_ps = context.now_ps();
            engine.user_memory().catch_up(space);
            ways.1 = context.now_ps() - started_ps;
        }
    }
    engine.switch_away(space, KERNEL_ROOT);
    ways
}
