//! A run of the torture on a machine, as counted steps.

use std::time::Duration;

use shootdown::{Capacity, Cpus};
use shootdown_hosted::{Config, Machine};
use shootdown_torture::{Context, Mix, Operation, Plan, Summary, Torture, WorkerId};

/// How often tasks rest, three times the usual: so that some CPU is idle now and then, with a space loaded.
const RESTS: u16 = 18;

/// `steps` of each task of a machine as `config` says, which has three tasks for two CPUs.
pub fn run<const N: usize>(config: Config, steps: usize, torture: &'static Torture<N>) -> Summary
where
    Cpus<N>: Capacity,
{
    let tasks = config.cpus + config.cpus / 2;
    let machine = Machine::<N>::start(&Config {
        tasks,
        spaces: 3,
        tick: Some(Duration::from_micros(500)),
        hiccup_one_in: Some(2048),
        ..config
    })
    .unwrap();
    let machine: &'static _ = Box::leak(Box::new(machine));
    let plan = Plan {
        mix: Mix::USUAL.with(Operation::Rest, RESTS),
        ..Plan::new(1)
    };
    torture.begin(machine, &plan);
    machine.on_tick(Box::leak(Box::new(|cpu| {
        torture.step(machine, WorkerId::interrupts_of(cpu), Context::Interrupt);
    })));
    machine
        .run_tasks(tasks, |task| {
            for _ in 0..steps {
                torture.step(machine, WorkerId::task(task), Context::Task);
            }
            machine.enter(None);
        })
        .unwrap();
    shootdown_hosted::torture::finish(machine, torture);
    torture.summary(machine, 1)
}
