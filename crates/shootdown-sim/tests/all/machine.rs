//! The machine itself: both models run the engine, and do so the same way every time.

use std::cell::RefCell;

use shootdown::{AddressSpace, CallTargets, CpuId, CpuMask, FlushRange, FreedTables, PageSize};
use shootdown_sim::explore::{Chooser, Explore, NoTlb, Strategy};
use shootdown_sim::machine::{Model, context};
use shootdown_sim::timed::{Costs, Preset, Timed};
use shootdown_sim::{Engine, Failure, FailureKind, Machine, Program, kernel_root_at, root_at};

const CPUS: usize = 4;

fn costs() -> Costs {
    Preset::named("haswell-ep").unwrap().costs()
}

/// Every CPU calls all others and flushes a shared space; returns what happened, in order.
fn everybody_calls_everybody(model: Model) -> (Vec<(usize, u32)>, u64, Option<Failure>) {
    let engine = Engine::<shootdown::Cpus<CPUS>>::new(CPUS);
    let space = AddressSpace::new(&engine, root_at(1));
    let log = RefCell::new(Vec::new());
    let machine = Machine::new(CPUS, model, || engine.handle_ipi());
    let programs = (0..CPUS)
        .map(|me| -> Program<'_> {
            let (engine, space, log) = (&engine, &space, &log);
            Box::new(move |_| {
                engine.online();
                while engine.ready_cpus().len() < CPUS {
                    std::hint::spin_loop();
                    context().work(10_000);
                }
                engine.switch_to(None, space);
                let shared = std::sync::Mutex::new(0u32);
                let ran = engine.call_many(CallTargets::Online, &|_: CpuId| {
                    *shared.lock().unwrap() += 1
                });
                assert_eq!(ran, CpuMask::first(CPUS));
                log.borrow_mut().push((me, *shared.lock().unwrap()));
                let page = FlushRange::pages(me << 12, 1, PageSize::SIZE_4K);
                engine.flush(space, page, FreedTables::No);
                engine.switch_away(space, kernel_root_at(0));
            })
        })
        .collect();
    let (state, failure) = machine.run(programs);
    (log.into_inner(), state.events, failure)
}

fn timed() -> Model {
    Model::Timed(Box::new(Timed::new(CPUS, costs())))
}

fn explored(seed: u64) -> Model {
    let chooser = Chooser::new(Strategy::Random(seed), CPUS);
    Model::Explore(Box::new(Explore::new(
        CPUS,
        chooser,
        Box::new(NoTlb),
        200_000,
    )))
}

#[test]
fn every_call_runs_on_every_cpu_in_virtual_time() {
    let (log, _, failure) = everybody_calls_everybody(timed());
    assert_eq!(failure, None);
    assert_eq!(log.len(), CPUS);
    assert!(log.iter().all(|(_, ran)| *ran == CPUS as u32), "{log:?}");
}

#[test]
fn every_call_runs_on_every_cpu_whatever_the_order() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let (log, _, failure) = everybody_calls_everybody(explored(seed));
        assert_eq!(failure, None, "seed {seed}");
        assert!(log.iter().all(|(_, ran)| *ran == CPUS as u32), "{log:?}");
        orders.insert(log);
    }
    assert!(orders.len() > 5, "only {} orders", orders.len());
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [1, 2] {
        assert_eq!(
            everybody_calls_everybody(explored(seed)),
            everybody_calls_everybody(explored(seed))
        );
    }
    assert_eq!(
        everybody_calls_everybody(timed()),
        everybody_calls_everybody(timed())
    );
}

#[test]
fn a_wait_for_nobody_is_found() {
    let engine = Engine::<shootdown::Cpus<CPUS>>::new(CPUS);
    let machine = Machine::new(1, explored_alone(), || engine.handle_ipi());
    let program: Program<'_> = Box::new(|context| context.wait_for_interrupt());
    let failure = machine.run(vec![program]).1.unwrap();
    assert_eq!(failure.kind, FailureKind::NoProgress);
}

#[test]
fn a_panic_ends_the_run_with_its_message() {
    let machine = Machine::new(1, explored_alone(), || ());
    let program: Program<'_> = Box::new(|_| panic!("on purpose"));
    let failure = machine.run(vec![program]).1.unwrap();
    assert_eq!(failure.kind, FailureKind::Panic);
    assert!(
        failure.message.starts_with("on purpose (machine.rs:"),
        "{failure}"
    );
}

fn explored_alone() -> Model {
    let chooser = Chooser::new(Strategy::Random(1), 1);
    Model::Explore(Box::new(Explore::new(1, chooser, Box::new(NoTlb), 1000)))
}
