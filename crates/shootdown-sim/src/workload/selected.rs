//! Table T5: several initiators call a function on sets of CPUs, again and again.
//!
//! Each initiator makes its calls one after the other and waits for each. The targets run user code otherwise. The
//! function takes the same time on each target and runs in the interrupt, so a target runs one at a time.

use std::cell::{Cell, RefCell};

use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::machine::{Machine, Model, Program, context};
use crate::timed::{Costs, Timed, Transfers};
use crate::workload::engine::with_size;
use crate::workload::peer::{Built, Peer};
use crate::workload::{Masks, fifo_limit_ps};

/// What the authors of T5 measured: mask size, and the change in execution time against one lock in percent, for 1, 2
/// and 4 initiators. They do not say how their masks were drawn.
pub const PUBLISHED_SELECTED: [(usize, [f64; 3]); 7] = [
    (1, [0.02, -35.23, -51.18]),
    (2, [0.01, -47.20, -69.27]),
    (4, [-0.02, -42.40, -66.55]),
    (8, [-0.03, -47.82, -68.39]),
    (16, [0.12, -41.95, -58.26]),
    (32, [0.02, -25.43, -39.35]),
    (64, [0.00, -24.70, -37.83]),
];

/// All CPUs are online and in user mode after this time.
const SETTLE_PS: u64 = 10_000_000_000;

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Whose calls.
    pub peer: Peer,
    /// CPUs that call.
    pub initiators: usize,
    /// Targets of each call.
    pub size: usize,
    /// How they are drawn.
    pub masks: Masks,
    /// CPUs of the machine.
    pub cpus: usize,
    /// How long the function takes on each target, in picoseconds.
    pub function_ps: u64,
    /// Calls of each initiator.
    pub calls: usize,
    /// The machine.
    pub costs: Costs,
    /// Decides the masks, and when interrupts find the targets.
    pub seed: u64,
}

/// What a row measured.
#[derive(Clone, Debug)]
pub struct SelectedResult {
    /// From the first call's beginning to the last one's end, in picoseconds.
    pub whole_ps: u64,
    /// The time of each call, by initiator.
    pub calls_ps: Vec<Vec<u64>>,
    /// What [`fifo_limit_ps`] says of the same masks.
    pub limit_ps: u64,
    /// How often the function ran.
    pub runs: u64,
    /// Cache lines that moved.
    pub lines: u64,
}

impl SelectedResult {
    /// The slowest initiator's 99th percentile by the fastest one's.
    pub fn unfairness(&self) -> f64 {
        let p99 = |calls: &Vec<u64>| {
            let mut sorted = calls.clone();
            sorted.sort_unstable();
            sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)]
        };
        let (least, most) = self
            .calls_ps
            .iter()
            .map(p99)
            .fold((u64::MAX, 0), |(least, most), p99| {
                (least.min(p99), most.max(p99))
            });
        most as f64 / least as f64
    }
}

impl Selected {
    /// Runs the row.
    ///
    /// # Panics
    /// With no initiator or no call, with too few CPUs for the masks, or when the calls fail.
    pub fn run(&self) -> SelectedResult {
        assert!(self.initiators > 0 && self.calls > 0);
        with_size!(self.cpus, run_sized(self))
    }

    fn draw(&self) -> Vec<Vec<Vec<usize>>> {
        self.masks
            .draw(self.seed, self.initiators, self.calls, self.size, self.cpus)
    }
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<const N: usize>(row: &Selected) -> SelectedResult
where
    Cpus<N>: Capacity,
{
    let peer: Built<N> = row.peer.build(row.cpus);
    let masks = row.draw();
    let (runs, times) = (
        Cell::new(0u64),
        RefCell::new(vec![Vec::new(); row.initiators]),
    );
    let span = Cell::new((u64::MAX, 0u64));
    let model = Timed::with_seed(row.cpus, row.costs.clone(), row.seed);
    let machine = Machine::new(row.cpus, Model::Timed(Box::new(model)), || {
        peer.calls().handle_ipi();
    });
    let work = Shared(&runs, row.function_ps);
    let programs = (0..row.cpus)
        .map(|cpu| -> Program<'_> {
            let (peer, masks, times, span, work) = (&peer, &masks, &times, &span, &work);
            Box::new(move |context| {
                peer.online();
                let Some(masks) = masks.get(cpu) else {
                    return;
                };
                context.work(SETTLE_PS - context.now_ps());
                for targets in masks {
                    let targets: CpuMask<N> =
                        targets.iter().map(|cpu| CpuId::new(*cpu as u32)).collect();
                    let started_ps = context.now_ps();
                    peer.calls().call(&targets, &|_| work.run());
                    let ended_ps = context.now_ps();
                    times.borrow_mut()[cpu].push(ended_ps - started_ps);
                    let (first_ps, last_ps) = span.get();
                    span.set((first_ps.min(started_ps), last_ps.max(ended_ps)));
                }
            })
        })
        .collect();
    let (mut state, failure) = machine.run(programs);
    assert_eq!(failure, None, "{} under selected", row.peer);
    let Transfers { moved, upgraded } = state.timed().expect("a timed machine").lines.transfers();
    let (first_ps, last_ps) = span.get();
    SelectedResult {
        whole_ps: last_ps - first_ps,
        calls_ps: times.into_inner(),
        limit_ps: fifo_limit_ps(&masks, row.function_ps),
        runs: runs.get(),
        lines: moved + upgraded,
    }
}

/// The function: it counts itself and takes time.
struct Shared<'a>(&'a Cell<u64>, u64);

// SAFETY: the virtual CPUs are coroutines of one thread.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    fn run(&self) {
        self.0.set(self.0.get() + 1);
        context().work(self.1);
    }
}
