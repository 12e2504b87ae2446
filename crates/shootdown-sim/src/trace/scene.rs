//! One shootdown as the README shows it: a thread discards a page that other CPUs may have cached.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use shootdown::{AddressSpace, CpuId, FlushRange, FreedTables, PageSize, Policy};

use crate::machine::{Context, Engine, Machine, State, kernel_root_at, root_at};
use crate::timed::{Costs, Preset, Timed};
use crate::trace::picture::{self, Panel};
use crate::trace::{Recorder, Span, SpanKind, Trace};
use crate::walkthrough::{Recorded, Titles, Walkthrough};

/// CPUs of the scene: the initiator and three targets.
pub const CPUS: usize = 4;
/// The policies that the scene compares.
pub const POLICIES: [(&str, Policy); 3] = [
    ("before", Policy::BEFORE),
    ("published", Policy::PUBLISHED),
    ("best", Policy::BEST),
];
/// Iterations until every line is where it will be at the start of each.
const WARM_UP: usize = 8;
const ITERATIONS: usize = WARM_UP + 2;
/// Where the first iteration's page is, if programs use it.
const FIRST_FRAME: u64 = 100;
/// How the initiator marks the start of an iteration.
const ITERATION: &str = "iteration";
/// User code between two calls.
const BETWEEN_PS: u64 = 1_500_000;
/// User code of an iteration in front of its call.
const IN_USER_CODE_PS: u64 = 80_000;
/// What the picture shows before and after.
const MARGIN_PS: u64 = 80_000;

/// What the scene's machine costs: the preset of table T1.
///
/// # Panics
/// Never: the preset exists.
pub fn costs() -> Costs {
    Preset::named("haswell-ep").expect("a preset").costs()
}

/// The trace of one iteration in the steady state: the initiator is CPU 0.
///
/// # Panics
/// When the engine fails.
pub fn steady_iteration(policy: Policy) -> Trace {
    let stage = Stage::new(policy, false);
    let trace = stage.play(|machine| machine.record(Recorder::new(CPUS)));
    steady(&trace.recorder.expect("set above").finish())
}

/// The same iteration to walk through: its page is used by all CPUs before it is discarded.
///
/// # Panics
/// When the engine fails.
pub fn walkthrough(name: &str, policy: Policy) -> Walkthrough {
    let stage = Stage::new(policy, true);
    let line_name = |address| stage.line_name(address);
    let mut state = stage.play(|machine| machine.hear_steps(line_name));
    let recorded = Recorded::of(&mut state).expect("set above");
    let call = steady(recorded.trace());
    let from_ps = call_of(&call).start_ps - MARGIN_PS;
    let to_ps = from_ps + busy_ps(&call) + 2 * MARGIN_PS;
    let titles = Titles {
        title: &format!(
            "One madvise on the simulated machine, {name}: {} ns",
            madvise_ns(&call)
        ),
        command: &format!("./lab bench madvise --machine sim --policies {name} --html FILE"),
    };
    recorded.timed(titles, from_ps, to_ps)
}

/// The iteration after those in which lines still find their places.
fn steady(trace: &Trace) -> Trace {
    let starts = trace.marks(0, ITERATION);
    trace.window(starts[WARM_UP], starts[WARM_UP + 1])
}

/// What the CPUs of the scene share.
struct Stage {
    engine: Engine<shootdown::Cpus<CPUS>>,
    space: AddressSpace<shootdown::Cpus<CPUS>>,
    done: Cell<bool>,
    /// The entry of each iteration's page, if programs use it: its frame, or 0.
    entries: Option<Vec<AtomicU64>>,
}

impl Stage {
    fn new(policy: Policy, uses_pages: bool) -> Self {
        let engine = Engine::new(CPUS);
        engine.set_policy(policy);
        let entries = (0..ITERATIONS).map(|_| AtomicU64::new(0)).collect();
        Self {
            space: AddressSpace::new(&engine, root_at(1)),
            engine,
            done: Cell::new(false),
            entries: uses_pages.then_some(entries),
        }
    }

    fn play<'a>(&'a self, prepare: impl FnOnce(&mut Machine<'a>)) -> State {
        let timed = Timed::new(CPUS, costs());
        let mut machine = Machine::timed(timed, || self.engine.handle_ipi());
        prepare(&mut machine);
        machine.run_each("the scene of the picture", |cpu, context| {
            self.engine.online();
            self.engine.switch_to(None, &self.space);
            context.doing(SpanKind::User, "user");
            if cpu == 0 {
                self.discard_pages(context);
            }
            while !self.done.get() {
                context.work(BETWEEN_PS);
                self.use_pages(context);
            }
            self.engine.switch_away(&self.space, kernel_root_at(0));
        })
    }

    fn discard_pages(&self, context: Context<'_>) {
        while self.engine.ready_cpus().len() < CPUS {
            context.work(BETWEEN_PS);
        }
        // As in the workload `madvise`.
        let costs = costs();
        let return_ps = costs.syscall_ps / 2;
        for iteration in 0..ITERATIONS {
            self.map(iteration, FIRST_FRAME + iteration as u64);
            context.work(BETWEEN_PS);
            self.use_pages(context);
            context.mark(ITERATION);
            context.work(IN_USER_CODE_PS);
            context.doing(SpanKind::Kernel, "madvise");
            context.work(costs.syscall_ps - return_ps + costs.madvise_ps);
            self.unmap(context, iteration);
            let page = FlushRange::pages(iteration << 12, 1, PageSize::SIZE_4K);
            self.engine.flush(&self.space, page, FreedTables::No);
            context.work(return_ps);
            context.doing(SpanKind::User, "user");
        }
        self.done.set(true);
    }

    fn map(&self, page: usize, frame: u64) {
        if let Some(entries) = &self.entries {
            entries[page].store(frame, Ordering::Relaxed);
        }
    }

    fn unmap(&self, context: Context<'_>, page: usize) {
        if self.entries.is_some() {
            self.map(page, 0);
            context.tell(|| format!("empties the entry of page {page}"));
        }
    }

    /// Loads from every page that is mapped.
    fn use_pages(&self, context: Context<'_>) {
        for (page, entry) in self.entries.iter().flatten().enumerate() {
            let frame = entry.load(Ordering::Relaxed);
            if frame != 0 {
                context.touch(page as u64, entry);
                context.tell(|| format!("loads from page {page} at frame {frame}"));
            }
        }
    }

    fn line_name(&self, address: usize) -> Option<String> {
        let of_space = self.space.line_name(address).map(str::to_owned);
        of_space.or_else(|| self.engine.full_line_name(address, CpuId::index))
    }
}

/// The picture of the scene: what kernels did, above what this engine does.
///
/// # Panics
/// When the engine fails.
pub fn picture() -> String {
    let before = steady_iteration(Policy::BEFORE);
    let best = steady_iteration(Policy::BEST);
    let length_ps = busy_ps(&before).max(busy_ps(&best)) + 2 * MARGIN_PS;
    let cut = |trace: &Trace| {
        let from_ps = call_of(trace).start_ps - MARGIN_PS;
        let mut trace = trace.window(from_ps, from_ps + length_ps);
        trace.spans.extend(look(&trace));
        trace
    };
    let outcome = |trace: &Trace| format!("madvise: {} ns", madvise_ns(trace));
    picture::svg(&[
        Panel {
            title: "before",
            remark: "interrupt the others, wait until all have flushed, then flush here",
            outcome: &outcome(&before),
            trace: &cut(&before),
        },
        Panel {
            title: "best",
            remark: "flush here meanwhile; the others acknowledge what they have received, then flush",
            outcome: &outcome(&best),
            trace: &cut(&best),
        },
    ])
}

/// From the start of the call until it is over and every target is back in user code.
fn busy_ps(trace: &Trace) -> u64 {
    let busy = trace.spans.iter().filter(|s| s.kind != SpanKind::User);
    let last_ps = busy.map(|s| s.end_ps).max().unwrap_or(0);
    last_ps - call_of(trace).start_ps
}

/// The initiator's only look at its request, if it found that complete: until the line with the acknowledgements had come, it waited.
fn look(trace: &Trace) -> Option<Span> {
    let mut own = trace.spans.iter().filter(|span| span.cpu == 0);
    let has_waited = own.clone().any(|span| span.kind == SpanKind::Wait);
    let flush = own.find(|span| span.kind == SpanKind::Flush)?;
    let own_flows = trace.flows.iter().filter(|flow| flow.initiator == 0);
    let end_ps = own_flows.map(|flow| flow.seen_ps).max()?;
    (!has_waited).then_some(Span {
        kind: SpanKind::Wait,
        name: "wait",
        start_ps: flush.end_ps,
        end_ps,
        ..*flush
    })
}

fn madvise_ns(trace: &Trace) -> u64 {
    let call = call_of(trace);
    (call.end_ps - call.start_ps + 500) / 1000
}

fn call_of(trace: &Trace) -> &Span {
    let mut calls = trace.spans.iter().filter(|s| s.kind == SpanKind::Kernel);
    calls.next().expect("an iteration has a call")
}
