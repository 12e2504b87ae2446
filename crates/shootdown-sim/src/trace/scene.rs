//! One shootdown as the README shows it: a thread discards a page that other CPUs may have cached.

use std::cell::Cell;

use shootdown::{AddressSpace, FlushRange, FreedTables, PageSize, Policy};

use crate::machine::{Context, Engine, Machine, root_at};
use crate::timed::{Costs, Preset, Timed};
use crate::trace::picture::{self, Panel};
use crate::trace::{Recorder, Span, SpanKind, Trace};

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
/// How the initiator marks the start of an iteration.
const ITERATION: &str = "iteration";
/// What the memory manager does around the flush, and user code between two calls.
const BEFORE_FLUSH_PS: u64 = 150_000;
const AFTER_FLUSH_PS: u64 = 100_000;
const BETWEEN_PS: u64 = 1_500_000;
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
    let trace = run(policy);
    let starts = trace.marks(0, ITERATION);
    trace.window(starts[WARM_UP], starts[WARM_UP + 1])
}

fn run(policy: Policy) -> Trace {
    let engine = Engine::new(CPUS);
    engine.set_policy(policy);
    let space = AddressSpace::new(&engine, root_at(1));
    let done = Cell::new(false);
    let mut machine = Machine::timed(Timed::new(CPUS, costs()), || engine.handle_ipi());
    machine.record(Recorder::new(CPUS));
    let mut state = machine.run_each("the scene of the picture", |cpu, context| {
        engine.online();
        engine.switch_to(None, &space);
        context.doing(SpanKind::User, "user");
        if cpu == 0 {
            discard_pages(context, &engine, &space, &done);
        }
        while !done.get() {
            context.work(BETWEEN_PS);
        }
        engine.switch_away(&space, root_at(0));
    });
    state.recorder.take().expect("set above").finish()
}

fn discard_pages(
    context: Context<'_>,
    engine: &Engine<CPUS>,
    space: &AddressSpace<CPUS>,
    done: &Cell<bool>,
) {
    while engine.ready_cpus().len() < CPUS {
        context.work(BETWEEN_PS);
    }
    for iteration in 0..WARM_UP + 2 {
        context.work(BETWEEN_PS);
        context.mark(ITERATION);
        context.work(BEFORE_FLUSH_PS);
        context.doing(SpanKind::Kernel, "madvise");
        context.work(BEFORE_FLUSH_PS);
        let page = FlushRange::pages(iteration << 12, 1, PageSize::SIZE_4K);
        engine.flush(space, page, FreedTables::No);
        context.work(AFTER_FLUSH_PS);
        context.doing(SpanKind::User, "user");
    }
    done.set(true);
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
        trace.window(from_ps, from_ps + length_ps)
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

fn madvise_ns(trace: &Trace) -> u64 {
    let call = call_of(trace);
    (call.end_ps - call.start_ps + 500) / 1000
}

fn call_of(trace: &Trace) -> &Span {
    let mut calls = trace.spans.iter().filter(|s| s.kind == SpanKind::Kernel);
    calls.next().expect("an iteration has a call")
}
