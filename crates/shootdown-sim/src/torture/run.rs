//! One run.

use std::mem;
use std::rc::Rc;

use shootdown_torture::{Operation, Plan, Torture};

use crate::explore::{Chooser, Explore, Schedule};
use crate::kernel::Adversary;
use crate::machine::{Engine, Failure, Machine, Model, Program};
use crate::torture::Case;
use crate::torture::flaw::{Flaw, Flawed};
use crate::torture::memory::TortureMemory;
use crate::torture::rig::Rig;

/// More events than any run needs that gets on.
const MOST_EVENTS: u64 = 600_000;

/// What one run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
    /// Events of all CPUs.
    pub events: u64,
    /// Steps of all workers.
    pub steps: u64,
    /// How often each operation of [`Operation::ALL`] was done.
    pub done: Vec<u64>,
    /// The unusual answers: with them as its schedule, the case runs in the same way.
    pub schedule: Schedule,
    /// What happened, in words; empty unless it was asked for.
    pub story: Vec<String>,
}

/// Runs a case. Deterministic.
pub fn run(case: &Case) -> Report {
    run_any(case, false, None)
}

/// Runs a case on a platform with a flaw.
pub fn run_with_flaw(case: &Case, flaw: Flaw) -> Report {
    run_any(case, false, Some(flaw))
}

/// Runs a case and tells what happens.
pub fn run_with_story(case: &Case) -> Report {
    run_any(case, true, None)
}

/// CPUs of the engine. The books of larger ones have megabytes, for each run; wide inboxes are for [`fuzz`](crate::fuzz).
const SIZE: usize = Case::MOST_CPUS;

fn run_any(case: &Case, tells: bool, flaw: Option<Flaw>) -> Report {
    let torture = Box::into_raw(Box::<Torture<SIZE>>::default());
    // SAFETY: freed below, after everything that refers to it.
    let report = run_with(case, tells, flaw, unsafe { &*torture });
    if report.failure.is_none() {
        // SAFETY: from `into_raw`; the rig and all programs are gone.
        drop(unsafe { Box::from_raw(torture) });
    }
    report
}

fn run_with(
    case: &Case,
    tells: bool,
    flaw: Option<Flaw>,
    torture: &'static Torture<SIZE>,
) -> Report {
    let (cpus, tasks) = (case.cpus, case.tasks());
    let engine = Rc::new(Engine::new(cpus));
    let memory = TortureMemory::new(engine.clone(), cpus, cpus + tasks, case.kernel_pages());
    let tlbs = Box::new(Flawed::new(Adversary(memory.hardware.clone()), flaw));
    let chooser = Chooser::new(case.strategy(), cpus);
    let model = Explore::new(cpus, chooser, tlbs, MOST_EVENTS).with_asid_slots(case.asid_slots());
    let rig = Rig::new(engine, memory, torture, cpus, tasks);
    torture.begin(&rig, &Plan::new(case.seed));
    let handler = || rig.interrupt();
    let mut machine =
        Machine::new(cpus, Model::Explore(Box::new(model)), handler).with_host(&rig, tasks);
    if tells {
        machine = machine.with_story();
    }
    let programs = (0..cpus + tasks).map(|task| -> Program<'_> {
        let rig = &rig;
        match task < cpus {
            true => Box::new(|_| rig.own()),
            false => Box::new(|_| rig.work(Case::STEPS)),
        }
    });
    let (mut state, failure) = machine.run(programs.collect());
    let summary = torture.summary(&rig, 0);
    let story = state.story.take().unwrap_or_default();
    let events = state.events;
    let chooser = state.explore().map(|explore| &explore.chooser);
    let report = Report {
        failure,
        events,
        steps: summary.steps(),
        done: Operation::ALL
            .iter()
            .map(|operation| summary.done(*operation))
            .collect(),
        schedule: chooser.map_or_else(Schedule::default, |chooser| chooser.taken().clone()),
        story,
    };
    if report.failure.is_some() {
        // Spaces are still loaded on CPUs that no longer exist, which their drop would rightly refuse.
        mem::forget(rig);
    }
    report
}
