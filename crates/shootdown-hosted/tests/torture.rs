//! The engine on this host's own processors, under the whole mix: counted steps, not time.

use std::time::Duration;

use shootdown_hosted::{Config, Machine};
use shootdown_torture::{Context, Operation, Plan, Summary, Torture, WorkerId};

const CPUS: usize = 4;
const TASKS: usize = 6;
const STEPS: usize = if cfg!(tsan) { 10_000 } else { 20_000 };

fn run(plan: &Plan) -> Summary {
    let machine = Machine::<CPUS>::start(&Config {
        tasks: TASKS,
        spaces: 3,
        tick: Some(Duration::from_micros(500)),
        hiccup_one_in: Some(2048),
        ..Config::new(CPUS)
    })
    .unwrap();
    let machine: &'static _ = Box::leak(Box::new(machine));
    let torture: &'static Torture<CPUS> = Box::leak(Box::default());
    torture.begin(machine, plan);
    machine.on_tick(Box::leak(Box::new(|cpu| {
        torture.step(machine, WorkerId::interrupts_of(cpu), Context::Interrupt);
    })));
    machine
        .run_tasks(TASKS, |task| {
            for _ in 0..STEPS {
                torture.step(machine, WorkerId::task(task), Context::Task);
            }
            machine.enter(None);
        })
        .unwrap();
    shootdown_hosted::torture::finish(machine, torture);
    torture.summary(machine, 1)
}

#[test]
fn the_engine_keeps_its_promises_on_this_silicon() {
    let summary = run(&Plan::new(1));
    assert_eq!(summary.violations(), 0, "{summary}");
    for operation in Operation::ALL {
        assert!(summary.done(*operation) > 0, "{operation:?} was not done");
    }
    let stats = summary.stats();
    for (what, count) in [
        ("ipis_received", stats.ipis_received),
        ("remote_flushes", stats.remote_flushes),
        ("early_acks", stats.early_acks),
        ("tags_dropped", stats.tags_dropped),
        ("lazy_skipped", stats.lazy_skipped),
        ("lazy_detached", stats.lazy_detached),
        ("slots_exhausted", stats.slots_exhausted),
    ] {
        assert!(
            count > 0,
            "this run has shown nothing about {what}\n{summary}"
        );
    }
}
