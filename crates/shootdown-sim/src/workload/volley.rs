//! The scale table: one CPU calls many, or all call at once, a function that does nothing or little.

use std::cell::{Cell, RefCell};

use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::machine::Context;
use crate::timed::{Activity, Costs, Timed};
use crate::workload::engine::with_close_size;
use crate::workload::fairness::{quantile, unfairness};
use crate::workload::peer::Function;
use crate::workload::{Built, Peer};

/// All CPUs are online and in user mode after this time, and again after a round to warm up.
const SETTLE_PS: u64 = 1_000_000_000_000;
/// Between two calls of a lone initiator: its targets are long back in user mode.
const PAUSE_PS: u64 = 100_000_000_000;

/// Who calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Callers {
    /// CPU 0, and the machine is idle between its calls.
    One,
    /// All CPUs, from the same moment on, each call after the other.
    All,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Volley {
    /// Whose calls.
    pub peer: Peer,
    /// Who calls.
    pub callers: Callers,
    /// Targets of each call, drawn anew for each among all other CPUs, uniformly, without repetition.
    pub targets: usize,
    /// CPUs of the machine.
    pub cpus: usize,
    /// How long the function takes on each target, in picoseconds.
    pub function_ps: u64,
    /// Calls of each caller, besides one to warm up.
    pub calls: usize,
    /// The machine.
    pub costs: Costs,
    /// Decides the targets, and when interrupts find them.
    pub seed: u64,
}

/// One call, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Called {
    /// Whose.
    pub initiator: usize,
    /// From its beginning to its end.
    pub whole_ps: u64,
    /// Until its last interrupt was sent; 0 if others' interrupts sufficed.
    pub sent_ps: u64,
    /// The initiator's own work: without turns of spin loops, and without interrupts that it took meanwhile.
    pub busy_ps: u64,
}

/// What a row measured.
#[derive(Clone, Debug)]
pub struct VolleyResult {
    /// Every call.
    pub calls: Vec<Called>,
    /// From the first call's beginning to the last one's end.
    pub whole_ps: u64,
    /// Executions of the function on other CPUs than the caller's: targets by calls.
    pub runs: u64,
    /// What all CPUs did.
    pub activity: Activity,
    /// Cache lines that moved.
    pub lines: u64,
    /// Memory of the algorithm in bytes.
    pub bytes: usize,
}

impl VolleyResult {
    /// The smallest figure of a call that so many thousandths of all calls do not exceed, in nanoseconds.
    pub fn quantile_ns(&self, per_mille: usize, figure: impl Fn(&Called) -> u64) -> f64 {
        let figures: Vec<u64> = self.calls.iter().map(figure).collect();
        quantile(&figures, per_mille) as f64 / 1000.0
    }

    /// See [`unfairness`].
    pub fn unfairness(&self) -> f64 {
        let initiators = self.calls.iter().map(|called| called.initiator + 1).max();
        let mut times_ps = vec![Vec::new(); initiators.unwrap_or(0)];
        for called in &self.calls {
            times_ps[called.initiator].push(called.whole_ps);
        }
        unfairness(&times_ps)
    }

    /// A sum, a call.
    pub fn per_call(&self, sum: u64) -> f64 {
        sum as f64 / self.calls.len() as f64
    }

    /// A sum, an execution on a target.
    pub fn per_target(&self, sum: u64) -> f64 {
        sum as f64 / self.runs as f64
    }
}

impl Volley {
    /// Runs the row. Large machines need [`on_large_stack`](crate::workload::on_large_stack).
    ///
    /// # Panics
    /// Without calls or targets, with too few CPUs, or when the calls fail.
    pub fn run(&self) -> VolleyResult {
        assert!(self.calls > 0 && (1..self.cpus).contains(&self.targets));
        with_close_size!(self.cpus, run_sized(self, true))
    }
}

/// What the programs of a run share.
struct Log {
    calls: RefCell<Vec<Called>>,
    first_ps: Cell<u64>,
    last_ps: Cell<u64>,
    runs: Cell<u64>,
    /// When the warm-up was over.
    before: Cell<(Activity, u64)>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<const N: usize>(row: &Volley, skips_idle_turns: bool) -> VolleyResult
where
    Cpus<N>: Capacity,
{
    let peer: Built<N> = Built::new(row.peer, row.cpus);
    let log = Log {
        calls: RefCell::default(),
        first_ps: Cell::new(u64::MAX),
        last_ps: Cell::new(0),
        runs: Cell::new(0),
        before: Cell::default(),
    };
    let machine = peer.machine(row.cpus, &row.costs, row.seed, skips_idle_turns);
    let mut state = machine.run_each(row.peer.name(), |cpu, context| {
        peer.online();
        if row.callers == Callers::All || cpu == 0 {
            row.calls_of(cpu, context, &peer, &log);
        }
    });
    let timed = state.timed().expect("a timed machine");
    let (activity, lines) = counted(timed);
    let (activity_before, lines_before) = log.before.get();
    VolleyResult {
        calls: log.calls.into_inner(),
        whole_ps: log.last_ps.get() - log.first_ps.get(),
        runs: log.runs.get(),
        activity: activity - activity_before,
        lines: lines - lines_before,
        bytes: peer.calls().bytes(),
    }
}

impl Volley {
    /// The program of one caller: a call to warm up, then those that count.
    fn calls_of<const N: usize>(&self, cpu: usize, context: Context<'_>, peer: &Built<N>, log: &Log)
    where
        Cpus<N>: Capacity,
    {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (cpu as u64) << 32);
        context.work(SETTLE_PS - context.now_ps());
        self.call(cpu, context, &mut random, peer, log);
        // Interrupts of the warm-up make the first of these longer, and none comes in the second.
        context.work(SETTLE_PS / 2);
        context.work(2 * SETTLE_PS - context.now_ps());
        if cpu == 0 {
            log.before.set(context.timed(|timed| counted(timed)));
            log.runs.set(0);
        }
        // Whoever is as early as CPU 0 comes after it, so that nothing is counted before.
        for _ in 0..self.calls {
            let called = self.call(cpu, context, &mut random, peer, log);
            log.calls.borrow_mut().push(called);
            if self.callers == Callers::One {
                context.work(PAUSE_PS);
            }
        }
    }

    fn call<const N: usize>(
        &self,
        cpu: usize,
        context: Context<'_>,
        random: &mut fastrand::Rng,
        peer: &Built<N>,
        log: &Log,
    ) -> Called
    where
        Cpus<N>: Capacity,
    {
        let others = (0..self.cpus).filter(|other| *other != cpu);
        let targets: CpuMask<N> = random
            .choose_multiple(others, self.targets)
            .into_iter()
            .map(|target| CpuId::new(target as u32))
            .collect();
        let function = Function(&log.runs, self.function_ps);
        let started_ps = context.now_ps();
        let before = context.timed(|timed| timed.activity(cpu));
        peer.calls().call(&targets, &|_| function.run());
        let ended_ps = context.now_ps();
        let (after, sent_ps) =
            context.timed(|timed| (timed.activity(cpu), timed.last_sent_ps(cpu)));
        log.first_ps.set(log.first_ps.get().min(started_ps));
        log.last_ps.set(log.last_ps.get().max(ended_ps));
        let (whole_ps, away) = (ended_ps - started_ps, after - before);
        Called {
            initiator: cpu,
            whole_ps,
            sent_ps: sent_ps.map_or(0, |sent_ps| sent_ps.saturating_sub(started_ps)),
            busy_ps: whole_ps - away.relaxed_ps - away.handler_ps,
        }
    }
}

fn counted(timed: &Timed) -> (Activity, u64) {
    (timed.activities(), timed.lines.transfers().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::Preset;

    fn row(peer: Peer, callers: Callers) -> Volley {
        Volley {
            peer,
            callers,
            targets: 7,
            cpus: 20,
            function_ps: 0,
            calls: 3,
            costs: Preset::named("40-core").unwrap().costs(),
            seed: 5,
        }
    }

    #[test]
    fn every_target_of_every_call_is_counted_once() {
        for peer in Peer::ALL {
            for (callers, calls) in [(Callers::One, 3), (Callers::All, 60)] {
                let result = row(peer, callers).run();
                assert_eq!(result.calls.len(), calls, "{peer}");
                assert_eq!(result.runs, calls as u64 * 7, "{peer}");
                let Activity {
                    ipis_sent,
                    register_writes,
                    ..
                } = result.activity;
                assert!(
                    register_writes <= ipis_sent && ipis_sent <= result.runs,
                    "{peer}"
                );
                for called in &result.calls {
                    let Called {
                        whole_ps,
                        sent_ps,
                        busy_ps,
                        ..
                    } = *called;
                    assert!(
                        sent_ps <= whole_ps && busy_ps <= whole_ps,
                        "{peer}: {called:?}"
                    );
                }
            }
        }
    }

    /// A lone initiator interrupts each target once; who multicasts needs a write a cluster of 16.
    #[test]
    fn sending_costs_a_register_write_a_cluster_or_a_target() {
        for (peer, most) in [
            (Peer::Mailbox, 21),
            (Peer::OneLock, 6),
            (Peer::Shootdown, 6),
        ] {
            let activity = row(peer, Callers::One).run().activity;
            assert_eq!(activity.ipis_sent, 21, "{peer}");
            assert!(activity.register_writes <= most, "{peer}: {activity:?}");
            assert_eq!(activity.ipis_taken, 21, "{peer}");
        }
    }

    #[test]
    fn nothing_happens_in_turns_that_are_left_out() {
        for peer in Peer::ALL {
            let row = row(peer, Callers::All);
            let (left_out, simulated) = (run_sized::<64>(&row, true), run_sized::<64>(&row, false));
            assert_eq!(left_out.calls, simulated.calls, "{peer}");
            assert_eq!(left_out.activity, simulated.activity, "{peer}");
        }
    }
}
