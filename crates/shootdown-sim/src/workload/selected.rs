//! Table T5: several initiators call a function on sets of CPUs, again and again.
//!
//! Each initiator makes its calls one after the other and waits for each. The targets run user code otherwise. The
//! function takes the same time on each target and runs in the interrupt, so a target runs one at a time.

use std::cell::{Cell, RefCell};

use shootdown::Capacity;
use shootdown_peers::fifo_limit;

use crate::timed::{Costs, Timed};
use crate::workload::engine::with_close_size;
use crate::workload::fairness::{quantile, unfairness};
use crate::workload::peer::Function;
use crate::workload::{Built, Masks, Means, Peer};

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
    /// What [`fifo_limit`] says of the same masks.
    pub limit_ps: u64,
    /// How often the function ran.
    pub runs: u64,
    /// Cache lines that moved.
    pub lines: u64,
}

impl SelectedResult {
    /// See [`unfairness`].
    pub fn unfairness(&self) -> f64 {
        unfairness(&self.calls_ps)
    }

    /// The smallest time of a call that so many thousandths of all calls do not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize) -> f64 {
        quantile(&self.calls_ps.concat(), per_mille) as f64 / 1000.0
    }
}

impl Selected {
    /// Runs the row.
    ///
    /// # Panics
    /// With no initiator or no call, with too few CPUs for the masks, or when the calls fail.
    pub fn run(&self) -> SelectedResult {
        assert!(self.initiators > 0 && self.calls > 0);
        with_close_size!(self.cpus, run_sized(self, true))
    }
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Selected, skips_idle_turns: bool) -> SelectedResult {
    let peer: Built<C> = Built::new(row.peer, row.cpus);
    let masks = (row.masks).draw::<C>(row.seed, row.initiators, row.calls, row.size, row.cpus);
    let (runs, times) = (
        Cell::new(0u64),
        RefCell::new(vec![Vec::new(); row.initiators]),
    );
    let span = Cell::new((u64::MAX, 0u64));
    let timed = Timed::with_seed(row.cpus, row.costs.clone(), row.seed);
    let machine = peer.machine(timed, Means::Interrupts, skips_idle_turns);
    let work = Function(&runs, row.function_ps);
    let run = |_| work.run();
    let mut state = machine.run_each(row.peer.name(), |cpu, context| {
        peer.online();
        let Some(masks) = masks.get(cpu) else {
            return;
        };
        context.work(SETTLE_PS - context.now_ps());
        for targets in masks {
            let started_ps = context.now_ps();
            peer.calls().call(targets, &run);
            let ended_ps = context.now_ps();
            times.borrow_mut()[cpu].push(ended_ps - started_ps);
            let (first_ps, last_ps) = span.get();
            span.set((first_ps.min(started_ps), last_ps.max(ended_ps)));
        }
    });
    let timed = state.timed().expect("a timed machine");
    let (first_ps, last_ps) = span.get();
    SelectedResult {
        whole_ps: last_ps - first_ps,
        calls_ps: times.into_inner(),
        limit_ps: fifo_limit(&masks, row.function_ps),
        runs: runs.get(),
        lines: timed.lines.transfers().sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::Preset;

    /// What [`Timed::without_idle_turns`](crate::timed::Timed::without_idle_turns) promises. The engine's own waiters look for a watchdog every so many turns, which
    /// takes them to a line; so for them this holds only as long as waits are short.
    #[test]
    fn nothing_happens_in_turns_that_are_left_out() {
        for peer in Peer::ALL {
            let row = Selected {
                peer,
                initiators: 4,
                size: 5,
                masks: Masks::Random,
                cpus: 16,
                function_ps: 1_000_000,
                calls: 20,
                costs: Preset::named("40-core").unwrap().costs(),
                seed: 3,
            };
            let (left_out, simulated) = (
                run_sized::<shootdown::Cpus<64>>(&row, true),
                run_sized::<shootdown::Cpus<64>>(&row, false),
            );
            assert_eq!(left_out.calls_ps, simulated.calls_ps, "{peer}");
            assert_eq!(left_out.lines, simulated.lines, "{peer}");
        }
    }
}
