//! [`Bench`]: the run.
//!
//! CPU 0 leads: it announces a turn, the CPUs that call in it meet and begin together, the others rest and are called, and all
//! report when they are done. Before the next turn, every interrupt that is still on its way has arrived: a late one
//! would be the next contender's.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use shootdown::{Capacity, CpuId, Cpus, Platform};
use shootdown_peers::{Peer, fifo_limit};
use spin::Mutex;

use crate::contender::{Contender, contender};
use crate::engines::Engines;
use crate::host::Host;
use crate::plan::{Plan, Rest, Workload};
use crate::result::{Facts, Findings};
use crate::row::Row;
use crate::tally::Tallies;
use crate::turn::{Drawn, Log, Turn};
use crate::work::{Before, Work};

/// A turn that is not measured comes first, with one call for so many of a measured one.
const WARM_UP_SHARE: usize = 10;

/// One run on one machine.
pub struct Bench<H: 'static, const N: usize>
where
    Cpus<N>: Capacity,
{
    host: &'static H,
    plan: Plan,
    tallies: &'static Tallies<N>,
    contenders: Vec<(Peer, Contender<N>)>,
    /// Whose turn it is: whose interrupts come.
    active: AtomicUsize,
    turn: Mutex<Option<Arc<Turn<N>>>>,
    /// Turns that were announced.
    begun: AtomicU64,
    /// Initiators that stand at the line.
    ready: AtomicUsize,
    /// CPUs that have done their part.
    finished: AtomicUsize,
    over: AtomicBool,
    logs: Box<[Mutex<Log>]>,
}

impl<H, const N: usize> core::fmt::Debug for Bench<H, N>
where
    Cpus<N>: Capacity,
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bench")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Rows that were printed.
    pub rows: usize,
    /// Calls that were not carried out as they should.
    pub wrong: u64,
}

impl<H: Host, const N: usize> Bench<H, N>
where
    Cpus<N>: Capacity,
{
    /// A run of `plan` on `host`, with the host's engines beside the peers. No CPU works yet.
    ///
    /// # Panics
    /// If the host has more than `N` CPUs.
    pub fn new<P>(
        host: &'static H,
        plan: Plan,
        tallies: &'static Tallies<N>,
        ours: &'static Engines<P, N>,
    ) -> Self
    where
        P: Platform<Cpus = Cpus<N>> + Copy + 'static,
    {
        let cpus = host.cpus();
        assert!(cpus <= N, "{cpus} CPUs on a bench for {N}");
        let contenders = plan
            .peers
            .iter()
            .map(|peer| (*peer, contender(*peer, ours, cpus)))
            .collect();
        Self {
            host,
            plan,
            tallies,
            contenders,
            active: AtomicUsize::new(0),
            turn: Mutex::new(None),
            begun: AtomicU64::new(0),
            ready: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            logs: (0..cpus).map(|_| Mutex::new(Log::new())).collect(),
        }
    }

    /// The machine.
    pub fn host(&self) -> &'static H {
        self.host
    }

    /// Body of the interrupt that the contenders send. Interrupts off.
    pub fn handle_ipi(&self) {
        let mine = self.tallies.of(self.host.current_cpu());
        mine.entries.add(1);
        let runs = mine.runs.get();
        let (_, contender) = self.contenders[self.active.load(Ordering::Relaxed)];
        contender.handle_ipi();
        if mine.runs.get() == runs {
            mine.spurious.add(1);
        }
    }

    /// What each CPU but 0 does until the run is over. Interrupts on.
    pub fn work(&self) {
        self.host.online();
        self.finished.fetch_add(1, Ordering::Relaxed);
        let mut seen = 0;
        loop {
            // ORDERING: acquires the turn, or the end; pairs with the release in `announce` and `lead`.
            while self.begun.load(Ordering::Acquire) == seen {
                self.rest();
            }
            seen += 1;
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let turn = self.turn.lock().clone();
            if let Some(turn) = turn {
                self.take_part(&turn);
            }
            // ORDERING: publishes the log; pairs with the acquire in `await_all`.
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// What CPU 0 does: the whole run, printing its lines. Interrupts on. The other CPUs [work](Self::work), or will
    /// soon.
    pub fn lead(&self) -> Verdict {
        self.host.online();
        self.await_all();
        let (rows, left_out) = self.plan.rows(self.host.cpus());
        if left_out > 0 {
            let cpus = self.host.cpus();
            self.host.print(format_args!(
                "calls: {left_out} shapes need more than {cpus} CPUs and are left out"
            ));
        }
        let mut verdict = Verdict { rows: 0, wrong: 0 };
        for (done, row) in rows.iter().enumerate() {
            let label = self.label(row);
            self.host
                .print(format_args!("@progress {done} {} {label}", rows.len()));
            verdict.wrong += self.measure(row);
            verdict.rows += self.contenders.len();
        }
        self.over.store(true, Ordering::Relaxed);
        // ORDERING: publishes the end; pairs with the acquire in `work`.
        self.begun.fetch_add(1, Ordering::Release);
        verdict
    }

    fn label(&self, row: &Row) -> String {
        alloc::format!(
            "{} initiators, {} {} targets, {} us",
            row.initiators,
            row.targets,
            row.masks.name(),
            row.function_ns / 1000,
        )
    }

    /// All turns of one row; returns how many calls were wrong.
    fn measure(&self, row: &Row) -> u64 {
        let plan = &self.plan;
        let masks: Drawn<N> = Arc::new(row.masks.draw(
            plan.seed,
            row.initiators,
            plan.calls,
            row.targets,
            self.host.cpus(),
        ));
        let mut findings: Vec<Findings> = self
            .contenders
            .iter()
            .map(|_| Findings::with_room(row, plan))
            .collect();
        for (index, found) in findings.iter_mut().enumerate() {
            let calls = plan.calls.div_ceil(WARM_UP_SHARE);
            found.wrong += self.run_turn(row, &masks, index, calls);
        }
        for round in 0..plan.rounds {
            for step in 0..self.contenders.len() {
                // The first finds the machine in another state: that changes every round.
                let index = (step + round) % self.contenders.len();
                let found = &mut findings[index];
                let before = self.tallies.total();
                found.wrong += self.run_turn(row, &masks, index, plan.calls);
                found.counts.add_between(&before, &self.tallies.total());
                let logs: Vec<_> = self
                    .logs
                    .iter()
                    .take(row.initiators)
                    .map(Mutex::lock)
                    .collect();
                found.add(logs.iter().map(|log| &**log));
            }
        }
        for (found, (peer, contender)) in findings.iter().zip(&self.contenders) {
            let facts = Facts {
                cpus: self.host.cpus(),
                limit_ns: fifo_limit(&masks, row.function_ns),
                bytes: contender.bytes(),
            };
            let line = found.line(row, plan, *peer, &facts);
            self.host.print(format_args!("@row {line}"));
        }
        findings.iter().map(|found| found.wrong).sum()
    }

    /// One turn; returns how many calls were wrong.
    fn run_turn(&self, row: &Row, masks: &Drawn<N>, index: usize, calls: usize) -> u64 {
        let turn = Arc::new(Turn {
            contender: self.contenders[index].1,
            row: *row,
            masks: masks.clone(),
            calls,
        });
        self.active.store(index, Ordering::Relaxed);
        self.ready.store(0, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        *self.turn.lock() = Some(turn.clone());
        // ORDERING: publishes all of this; pairs with the acquire in `work`.
        self.begun.fetch_add(1, Ordering::Release);
        self.take_part(&turn);
        self.await_all();
        self.host.drain();
        let logs = self.logs.iter().take(row.initiators);
        logs.map(|log| log.lock().wrong).sum()
    }

    /// Waits for the other CPUs.
    fn await_all(&self) {
        // ORDERING: acquires their logs; pairs with the release in `work`.
        while self.finished.load(Ordering::Acquire) < self.host.cpus() - 1 {
            self.host.pause();
        }
    }

    /// What this CPU does in a turn: its calls, if it is an initiator.
    fn take_part(&self, turn: &Turn<N>) {
        let me = self.host.current_cpu();
        let Some(masks) = turn.masks.get(me.index()) else {
            return;
        };
        let mut log = self.logs[me.index()].lock();
        *log = Log {
            calls_ns: core::mem::take(&mut log.calls_ns),
            ..Log::new()
        };
        log.calls_ns.clear();
        log.calls_ns.reserve(turn.calls);
        self.line_up(turn.row.initiators);
        for targets in &masks[..turn.calls] {
            self.call(turn, targets, me, &mut log);
        }
    }

    /// Waits until all initiators are here.
    fn line_up(&self, initiators: usize) {
        self.ready.fetch_add(1, Ordering::Relaxed);
        while self.ready.load(Ordering::Relaxed) < initiators {
            self.host.pause();
        }
    }

    fn call(
        &self,
        turn: &Turn<N>,
        targets: &shootdown::CpuMask<Cpus<N>>,
        me: CpuId,
        log: &mut Log,
    ) {
        let forgets = self.plan.workload == Workload::Shoot;
        let work = Work {
            host: self.host,
            tallies: self.tallies,
            column: me.index(),
            function_ns: turn.row.function_ns,
            forgets,
        };
        let before = Before::note(&work, targets);
        let start_ns = self.host.now_ns();
        turn.contender.call(targets, &|cpu| work.run(cpu));
        let end_ns = self.host.now_ns();
        log.note(start_ns, end_ns);
        log.wrong += u64::from(!before.is_kept(&work, targets));
    }

    fn rest(&self) {
        match self.plan.rest {
            Rest::Busy => self.host.pause(),
            Rest::Halt => self.host.halt(),
        }
    }
}
