//! The scale table: one CPU calls many, or all call at once, a function that does nothing or little; or they flush a page.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use shootdown::{Capacity, CpuId, CpuMask, Policy};

use crate::machine::Context;
use crate::timed::{Activity, Costs, Fabric, Moves, Timed};
use crate::workload::engine::with_close_size;
use crate::workload::fairness::{quantile, unfairness};
use crate::workload::peer::Function;
use crate::workload::spaces::Spaces;
use crate::workload::{Built, Peer};

/// All CPUs are online and in user mode after this time, and again after a round to warm up.
const SETTLE_PS: u64 = 1_000_000_000_000;
/// So long a CPU does something else, at most, before each call where all call. Without it they keep step, which no real ones do: each inbox is then written by one
/// CPU at a time, and 256 CPUs that all call all took 47 us instead of 239.
const MOST_BEFORE_PS: u64 = 1_000_000;
/// Between two calls of a lone initiator: its targets are long back in user mode.
const PAUSE_PS: u64 = 100_000_000_000;

/// Who calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Callers {
    /// CPU 0, and the machine is idle between its calls.
    One,
    /// All CPUs, each call after the other, with up to a microsecond between.
    All,
}

/// What they have others do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Run a function. The targets of each call are drawn anew among all other CPUs, uniformly, without repetition.
    Call,
    /// Forget a page that the caller has changed, its own in a space that it shares with its targets. CPUs of a space are
    /// neighbours; those that no whole space is left for are idle.
    Flush,
}

/// How the engine's flushes reach other CPUs. Calls, and other kernels, interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Means {
    /// By interrupt.
    Interrupts,
    /// By an instruction that all CPUs obey, and tags that are the same on all of them, whatever the number of targets.
    Broadcasts(Fabric),
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Volley {
    /// Whose calls.
    pub peer: Peer,
    /// Who calls.
    pub callers: Callers,
    /// What they have others do.
    pub operation: Operation,
    /// How flushes reach them.
    pub means: Means,
    /// Targets of each call.
    pub targets: usize,
    /// CPUs of the machine.
    pub cpus: usize,
    /// How long the function takes on each target, in picoseconds.
    pub function_ps: u64,
    /// Calls of each caller, besides those to warm up.
    pub calls: usize,
    /// The machine.
    pub costs: Costs,
    /// Decides the targets, and when interrupts find them.
    pub seed: u64,
    /// Whether it is to be known which lines moved.
    pub names_lines: bool,
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
    /// Those of CPU 0 that warmed up: one, and where flushes are broadcast another. In the first the space gets its tag, in the
    /// second its initiator looks whether all CPUs have it.
    pub warm_up: Vec<Called>,
    /// From the first call's beginning to the last one's end.
    pub whole_ps: u64,
    /// Executions of the function, or pages forgotten, on other CPUs than the caller's: targets by calls.
    pub runs: u64,
    /// What all CPUs did.
    pub activity: Activity,
    /// Cache lines that moved.
    pub lines: u64,
    /// What they hold, if that was asked for.
    pub moves: BTreeMap<&'static str, Moves>,
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
        self.run_under(Policy::BEST)
    }

    /// The same under another policy of the engine's.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_under(&self, policy: Policy) -> VolleyResult {
        assert!(self.calls > 0 && (1..self.cpus).contains(&self.targets));
        with_close_size!(self.cpus, run_sized(self, policy, true))
    }
}

/// What the programs of a run share.
#[derive(Default)]
struct Log {
    calls: RefCell<Vec<Called>>,
    warm_up: RefCell<Vec<Called>>,
    /// When the first call began, and the last one ended.
    span_ps: Cell<Option<(u64, u64)>>,
    runs: Cell<u64>,
    /// Who has calls left.
    callers: Cell<usize>,
    is_over: Cell<bool>,
    /// When the warm-up was over, and when all was.
    counts: Cell<[(Activity, u64); 2]>,
    moves: RefCell<BTreeMap<&'static str, Moves>>,
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Volley, policy: Policy, skips_idle_turns: bool) -> VolleyResult {
    let peer: Built<C> = Built::new(row.peer, row.cpus);
    peer.set_policy(policy);
    let flushes = row.operation == Operation::Flush;
    let run = Run {
        row,
        peer: &peer,
        spaces: flushes.then(|| Spaces::new(&peer, row.targets + 1, row.cpus)),
        log: Log::default(),
    };
    let timed = Timed::with_seed(row.cpus, row.costs.clone(), row.seed);
    let machine = peer.machine(timed, row.means, skips_idle_turns);
    let mut state = machine.run_each(row.peer.name(), |cpu, context| run.program(cpu, context));
    if !flushes {
        run.end(state.timed().expect("a timed machine"));
    }
    let log = run.log;
    let [before, after] = log.counts.get();
    let (first_ps, last_ps) = log.span_ps.get().unwrap_or_default();
    VolleyResult {
        calls: log.calls.into_inner(),
        warm_up: log.warm_up.into_inner(),
        whole_ps: last_ps - first_ps,
        runs: log.runs.get(),
        activity: after.0 - before.0,
        lines: after.1 - before.1,
        moves: log.moves.into_inner(),
        bytes: peer.calls().bytes(),
    }
}

/// A row under way.
struct Run<'a, C: Capacity> {
    row: &'a Volley,
    peer: &'a Built<C>,
    /// Of those who flush.
    spaces: Option<Spaces<'a, C>>,
    log: Log,
}

impl<C: Capacity> Run<'_, C> {
    fn program(&self, cpu: usize, context: Context<'_>) {
        let log = &self.log;
        self.peer.online();
        let space = self.spaces.as_ref().filter(|spaces| spaces.has(cpu));
        if let Some(spaces) = space {
            spaces.load(cpu);
        }
        let is_idle = self.spaces.is_some() && space.is_none();
        if cpu == 0 || self.row.callers == Callers::All && !is_idle {
            log.callers.set(log.callers.get() + 1);
            self.calls(cpu, context);
            log.callers.set(log.callers.get() - 1);
        }
        if let Some(spaces) = space {
            self.stay(cpu, context);
            spaces.leave(cpu);
        }
    }

    /// Whoever leaves a space is no target any more: nobody does before all have flushed, and are back in user mode.
    fn stay(&self, cpu: usize, context: Context<'_>) {
        let log = &self.log;
        while log.callers.get() > 0 {
            context.work(PAUSE_PS);
        }
        context.work(PAUSE_PS);
        if cpu == 0 {
            context.timed(|timed| self.end(timed));
            log.is_over.set(true);
        }
        while !log.is_over.get() {
            context.work(PAUSE_PS);
        }
    }

    /// The calls of one CPU: those that warm up, then those that count.
    fn calls(&self, cpu: usize, context: Context<'_>) {
        let (row, log) = (self.row, &self.log);
        let mut random = fastrand::Rng::with_seed(row.seed ^ (cpu as u64) << 32);
        context.work(SETTLE_PS - context.now_ps());
        let mut warm_up = vec![self.call(cpu, context, &mut random)];
        if row.means != Means::Interrupts {
            context.work(PAUSE_PS);
            warm_up.push(self.call(cpu, context, &mut random));
        }
        if cpu == 0 {
            log.warm_up.replace(warm_up);
        }
        // Interrupts of the warm-up make the first of these longer, and none comes in the second.
        context.work(SETTLE_PS / 2);
        context.work(2 * SETTLE_PS - context.now_ps());
        if cpu == 0 {
            self.begin(context);
        }
        // Whoever is as early as CPU 0 comes after it, so that nothing is counted before.
        for _ in 0..row.calls {
            // `--machine cores`, whose interrupts are flags, makes one call behind the other.
            if row.costs.flags == 0 {
                context.work(match row.callers {
                    Callers::One => PAUSE_PS,
                    Callers::All => random.u64(..MOST_BEFORE_PS),
                });
            }
            let called = self.call(cpu, context, &mut random);
            log.calls.borrow_mut().push(called);
        }
    }

    fn call(&self, cpu: usize, context: Context<'_>, random: &mut fastrand::Rng) -> Called {
        let log = &self.log;
        let targets = match &self.spaces {
            Some(spaces) => spaces.fill(cpu, context),
            None => self.draw(cpu, random),
        };
        let function = Function(&log.runs, self.row.function_ps);
        let started_ps = context.now_ps();
        let before = context.timed(|timed| timed.activity(cpu));
        match &self.spaces {
            Some(spaces) => spaces.flush(cpu, &targets),
            None => self.peer.calls().call(&targets, &|_| function.run()),
        }
        let ended_ps = context.now_ps();
        let (after, sent_ps) =
            context.timed(|timed| (timed.activity(cpu), timed.last_sent_ps(cpu)));
        if let Some(spaces) = &self.spaces {
            let reached = spaces.reached(cpu, &targets, context);
            log.runs.set(log.runs.get() + reached);
        }
        let (first_ps, last_ps) = log.span_ps.get().unwrap_or((started_ps, ended_ps));
        let span_ps = (first_ps.min(started_ps), last_ps.max(ended_ps));
        log.span_ps.set(Some(span_ps));
        let (whole_ps, away) = (ended_ps - started_ps, after - before);
        Called {
            initiator: cpu,
            whole_ps,
            sent_ps: sent_ps.map_or(0, |sent_ps| sent_ps.saturating_sub(started_ps)),
            busy_ps: whole_ps - away.relaxed_ps - away.handler_ps,
        }
    }

    fn draw(&self, cpu: usize, random: &mut fastrand::Rng) -> CpuMask<C> {
        let others = (0..self.row.cpus).filter(|other| *other != cpu);
        let targets = random.choose_multiple(others, self.row.targets);
        let targets = targets.into_iter();
        targets.map(|target| CpuId::new(target as u32)).collect()
    }

    /// The warm-up is over.
    fn begin(&self, context: Context<'_>) {
        let log = &self.log;
        let now = context.timed(|timed| {
            if self.row.names_lines {
                timed.lines.open_account();
            }
            counted(timed)
        });
        log.counts.set([now; 2]);
        log.span_ps.set(None);
        log.runs.set(0);
    }

    /// All calls are complete.
    fn end(&self, timed: &mut Timed) {
        let log = &self.log;
        log.counts.set([log.counts.get()[0], counted(timed)]);
        let mut moves = log.moves.borrow_mut();
        for (address, line) in timed.lines.close_account() {
            *moves.entry(self.line_name(address)).or_default() += line;
        }
    }

    fn line_name(&self, address: usize) -> &'static str {
        let spaces = self.spaces.as_ref();
        let space = spaces.and_then(|spaces| spaces.line_name(address));
        let name = space.or_else(|| self.peer.calls().line_name(address));
        name.unwrap_or("other")
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
            operation: Operation::Call,
            means: Means::Interrupts,
            targets: 7,
            cpus: 20,
            function_ps: 0,
            calls: 3,
            costs: Preset::named("40-core").unwrap().costs(),
            seed: 5,
            names_lines: false,
        }
    }

    #[test]
    fn nothing_happens_in_turns_that_are_left_out() {
        for (peer, buffered_stores) in Peer::ALL.into_iter().flat_map(|it| [(it, 0), (it, 56)]) {
            let mut row = row(peer, Callers::All);
            row.costs.buffered_stores = buffered_stores;
            let run = |skips| run_sized::<shootdown::Cpus<64>>(&row, Policy::BEST, skips);
            let (left_out, simulated) = (run(true), run(false));
            assert_eq!(left_out.calls, simulated.calls, "{peer}");
            assert_eq!(left_out.activity, simulated.activity, "{peer}");
        }
    }
}
