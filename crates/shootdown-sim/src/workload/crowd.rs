//! Fewer interrupts: several CPUs flush one space at once, and may look whom their flush has nothing left for.

use std::cell::{Cell, RefCell};

use shootdown::{
    AddressSpace, Capacity, Cpus, FlushRange, FreedTables, PageSize, Policy, Root, Shootdown,
};

use crate::machine::{Context, Machine, Model, Program, SimPlatform};
use crate::timed::{Activity, Costs, Timed, Transfers};
use crate::workload::engine::with_close_size;

/// Long enough for everybody to be where it is to be, and for a storm to be over.
const SETTLE_PS: u64 = 1_000_000_000;
/// Between two looks of those that only run user code.
const USER_PS: u64 = 100_000_000;
const KERNEL_ROOT: Root = Root(0);

/// Whether initiators look at what their targets have left to drop ([`Policy::checks_covered`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Look {
    /// They interrupt whoever has the space loaded.
    Blind,
    /// They leave those alone whose generation is as new as their flush.
    AtGenerations,
}

impl Look {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Blind, Self::AtGenerations];

    /// In words, for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blind => "no",
            Self::AtGenerations => "yes",
        }
    }
}

/// Some CPUs of a space flush one page after the other, at the same time; the others run user code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Crowd {
    /// CPUs that flush.
    pub initiators: usize,
    /// CPUs besides the initiator of each flush, other initiators included.
    pub targets: usize,
    /// Flushes of each initiator.
    pub flushes: usize,
    /// What initiators look at.
    pub look: Look,
}

/// What it took.
#[derive(Clone, Debug)]
pub struct Crowded {
    /// Each flush, on its initiator, the shortest first.
    pub times_ps: Vec<u64>,
    /// What all CPUs did for all of them.
    pub activity: Activity,
    /// Cache lines that moved.
    pub lines: u64,
    /// CPUs that were left alone because they had nothing left.
    pub covered: u64,
}

impl Crowded {
    /// The median time of a flush.
    pub fn median_ps(&self) -> u64 {
        self.times_ps[self.times_ps.len() / 2]
    }

    /// A count, a flush.
    pub fn per_flush(&self, count: u64) -> f64 {
        count as f64 / self.times_ps.len() as f64
    }
}

impl Crowd {
    /// Lets them flush, under [`Policy::BEST`] and the look that is wanted.
    ///
    /// # Panics
    /// With more initiators than CPUs, or when the engine fails.
    pub fn run(self, costs: &Costs) -> Crowded {
        with_close_size!(self.targets + 1, run_sized(self, costs))
    }
}

/// What all CPUs have done so far: with interrupts, lines that moved, CPUs left alone.
type Counts = (Activity, u64, u64);

/// What a run is about.
struct Stage<'a, const N: usize>
where
    Cpus<N>: Capacity,
{
    engine: &'a Shootdown<SimPlatform, N>,
    space: &'a AddressSpace<N>,
    /// Initiators that still flush.
    busy: Cell<usize>,
    /// Before the first flush that counts, and after the last.
    counts: Cell<[Option<Counts>; 2]>,
    times_ps: RefCell<Vec<u64>>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<const N: usize>(crowd: Crowd, costs: &Costs) -> Crowded
where
    Cpus<N>: Capacity,
{
    let cpus = crowd.targets + 1;
    assert!(crowd.initiators <= cpus, "{crowd:?}");
    let engine: Box<Shootdown<SimPlatform, N>> = Box::new(Shootdown::new(SimPlatform));
    engine.set_policy(Policy::BEST.with_covered_check(crowd.look == Look::AtGenerations));
    let space = Box::new(AddressSpace::new(&engine, Root(1)));
    let stage = Stage {
        engine: &engine,
        space: &space,
        busy: Cell::new(crowd.initiators),
        counts: Cell::default(),
        times_ps: RefCell::default(),
    };
    let model = Timed::new(cpus, costs.clone());
    let machine = Machine::new(cpus, Model::Timed(Box::new(model)), || engine.handle_ipi());
    let programs = (0..cpus)
        .map(|cpu| -> Program<'_> {
            let stage = &stage;
            Box::new(move |context| {
                stage.engine.online();
                stage.engine.switch_to(None, stage.space);
                context.work(SETTLE_PS);
                if cpu < crowd.initiators {
                    stage.flush(context, crowd.flushes);
                }
                while stage.busy.get() > 0 {
                    context.work(USER_PS);
                }
                stage.engine.switch_away(stage.space, KERNEL_ROOT);
            })
        })
        .collect();
    let (_, failure) = machine.run(programs);
    assert_eq!(failure, None, "{crowd:?}");
    let [before, after] = stage.counts.get().map(|counts| counts.expect("noted"));
    let mut times_ps = stage.times_ps.into_inner();
    times_ps.sort_unstable();
    Crowded {
        times_ps,
        activity: after.0 - before.0,
        lines: after.1 - before.1,
        covered: after.2 - before.2,
    }
}

impl<const N: usize> Stage<'_, N>
where
    Cpus<N>: Capacity,
{
    /// An initiator's part: one flush to warm up, and after a rest the others. The first and the last initiator note what all
    /// have counted.
    fn flush(&self, context: Context<'_>, flushes: usize) {
        self.flush_once(context);
        context.work(SETTLE_PS);
        let [before, _] = self.counts.get();
        let before = before.unwrap_or_else(|| self.count(context));
        self.counts.set([Some(before), None]);
        for _ in 0..flushes {
            let time_ps = self.flush_once(context);
            self.times_ps.borrow_mut().push(time_ps);
        }
        // Until the last target has left its interrupt.
        context.work(SETTLE_PS);
        self.busy.set(self.busy.get() - 1);
        if self.busy.get() == 0 {
            self.counts.set([Some(before), Some(self.count(context))]);
        }
    }

    fn flush_once(&self, context: Context<'_>) -> u64 {
        let started_ps = context.now_ps();
        let range = FlushRange::pages(1 << 12, 1, PageSize::SIZE_4K);
        self.engine.flush(self.space, range, FreedTables::No);
        context.now_ps() - started_ps
    }

    fn count(&self, context: Context<'_>) -> Counts {
        let (activity, lines) = context.timed(|timed| {
            let Transfers { moved, upgraded } = timed.lines.transfers();
            (timed.activities(), moved + upgraded)
        });
        (activity, lines, self.engine.total_stats().covered_skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::Preset;

    fn crowded(initiators: usize, look: Look) -> Crowded {
        let costs = Preset::named("40-core").unwrap().costs();
        let crowd = Crowd {
            initiators,
            targets: 7,
            flushes: 20,
            look,
        };
        crowd.run(&costs)
    }

    #[test]
    fn a_lone_initiator_finds_nobody_covered_and_pays_for_looking() {
        let [blind, looking] = Look::ALL.map(|look| crowded(1, look));
        assert_eq!((blind.covered, looking.covered), (0, 0));
        assert_eq!(
            blind.activity.ipis_sent, looking.activity.ipis_sent,
            "{looking:?}"
        );
        assert!(looking.lines > blind.lines, "{blind:?} {looking:?}");
    }

    #[test]
    fn of_several_flushes_at_once_some_find_targets_that_have_nothing_left() {
        let [blind, looking] = Look::ALL.map(|look| crowded(4, look));
        assert_eq!(blind.times_ps.len(), 80);
        assert_eq!(blind.covered, 0);
        assert!(looking.covered > 0, "{looking:?}");
    }
}
