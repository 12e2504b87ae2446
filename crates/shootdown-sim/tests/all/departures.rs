//! A CPU that goes offline, where inboxes have several words, under many schedules.

use std::cell::Cell;

use shootdown::calls::Wait;
use shootdown::{CpuId, CpuMask, FlushRange, FlushScope, FreedTables, PageSize, Platform};
use shootdown_sim::explore::{Chooser, Explore, NoTlb, Strategy};
use shootdown_sim::machine::Model;
use shootdown_sim::{Engine, Failure, Machine, Program};

const CPUS: usize = 3;
/// So many that an inbox has two words.
const CAPACITY: usize = 128;
/// One schedule in ten thousand comes upon it.
const SEEDS: u64 = 60_000;
const MOST_EVENTS: u64 = 100_000;

#[derive(Default)]
struct Stage {
    here: Cell<usize>,
    over: Cell<usize>,
    flush_begins: Cell<bool>,
    sent: Cell<usize>,
    runs: Cell<usize>,
}

fn wait_for(engine: &Engine<shootdown::Cpus<CAPACITY>>, is_so: impl Fn() -> bool) {
    while !is_so() {
        engine.platform().relax();
    }
}

/// Posts to CPU 0 when the flush begins, and answers nobody before.
fn post(engine: &Engine<shootdown::Cpus<CAPACITY>>, stage: &Stage) {
    let counter = (&raw const stage.runs).expose_provenance();
    let irq = engine.platform().irq_save();
    wait_for(engine, || stage.flush_begins.get());
    let names = engine
        .submit(
            &CpuMask::only(CpuId::new(0)),
            move |_| {
                let counter = std::ptr::with_exposed_provenance::<Cell<usize>>(counter);
                // SAFETY: it lives until the machine has ended, whose CPUs are coroutines of one thread.
                let runs = unsafe { &*counter };
                runs.set(runs.get() + 1);
            },
            Wait::None,
        )
        .targets();
    stage.sent.set(names.len());
    // SAFETY: 1. saved above.
    unsafe { engine.platform().irq_restore(irq) };
}

/// CPU 0 leaves, CPU 1 answers it and flushes, CPU 2 posts to it.
fn play(seed: u64, stage: &Stage) -> Option<Failure> {
    let strategy = match seed % 2 {
        0 => Strategy::Priorities { seed, changes: 3 },
        _ => Strategy::Random(seed),
    };
    let chooser = Chooser::new(strategy, CPUS);
    let model = Explore::new(CPUS, chooser, Box::new(NoTlb), MOST_EVENTS);
    let engine = Engine::<shootdown::Cpus<CAPACITY>>::new(CPUS);
    let machine = Machine::new(CPUS, Model::Explore(Box::new(model)), || {
        engine.handle_ipi()
    });
    let program = |me: usize| -> Program<'_> {
        let engine = &engine;
        Box::new(move |_| {
            engine.online();
            stage.here.set(stage.here.get() + 1);
            wait_for(engine, || stage.here.get() == CPUS);
            match me {
                0 => engine.offline(),
                1 => {
                    engine.poll();
                    stage.flush_begins.set(true);
                    let page = FlushRange::pages(0, 1, PageSize::SIZE_4K);
                    engine.flush(FlushScope::Kernel, page, FreedTables::No);
                }
                _ => post(engine, stage),
            }
            stage.over.set(stage.over.get() + 1);
            wait_for(engine, || stage.over.get() == CPUS);
        })
    };
    machine.run((0..CPUS).map(program).collect()).1
}

/// A function relies on the first CPU of its word to ring. That may be one that flushes, after it has answered the CPU that leaves.
#[test]
fn a_function_behind_a_flush_that_has_not_rung_runs_before_the_cpu_is_gone() {
    for seed in 0..SEEDS {
        let stage = Stage::default();
        assert_eq!(play(seed, &stage), None, "seed {seed}");
        assert_eq!(stage.runs, stage.sent, "seed {seed}");
    }
}
