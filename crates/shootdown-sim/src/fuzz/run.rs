//! One run.

use std::mem;

use shootdown::{Capacity, Cpus, sim::Unfinished};

use crate::explore::{Chooser, Explore, Hardware, Schedule};
use crate::fuzz::setting::Setting;
use crate::fuzz::{Case, Conduct};
use crate::kernel::{Plan, Sight, Sightings, World};
use crate::machine::{Failure, FailureKind, Machine, Model, Program, State, UNWINDS, unwind_at};
use crate::walkthrough::{Recorded, Titles, Walkthrough};

/// More events than any run with few CPUs needs that gets on; with more CPUs it is as many times more.
const MOST_EVENTS: u64 = 2_000_000;
const FEW_CPUS: usize = 8;

/// What one run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
    /// Events of all CPUs.
    pub events: u64,
    /// Questions that had more than one answer.
    pub questions: u32,
    /// The unusual answers: with them as its schedule, the case runs in the same way.
    pub schedule: Schedule,
    /// What the engine did.
    pub conduct: Conduct,
    /// How often it came upon what it is to find now and then.
    pub sightings: Sightings,
    /// What happened, in words; empty unless it was asked for.
    pub story: Vec<String>,
}

/// Calls a generic function with the engine's capacity that was drawn.
macro_rules! with_capacity {
    ($capacity:expr, $function:ident($($argument:expr),*)) => {
        match $capacity {
            64 => $function::<Cpus<64>>($($argument),*),
            66 => $function::<Cpus<66>>($($argument),*),
            68 => $function::<Cpus<68>>($($argument),*),
            _ => $function::<Cpus<128>>($($argument),*),
        }
    };
}

/// Runs a case. Deterministic.
pub fn run(case: &Case) -> Report {
    run_as(case, Heard::Nothing).0
}

/// Runs a case on a platform one method of which unwinds, when it is called for the `call`th time outside interrupts. `None` if it is not called so often.
pub fn run_unwinding(case: &Case, call: u32) -> Option<Failure> {
    unwind_at(call);
    let failure = run(case).failure;
    unwind_at(0);
    failure
}

/// Whether that is what ended a run.
pub fn is_unwinding(failure: &Failure) -> bool {
    failure.kind == FailureKind::Panic && failure.message.starts_with(UNWINDS)
}

/// Runs a case in which CPU `cpu` stops for good after so many of its events. What it has left half done, once each, when the others have nothing left to do that does
/// not wait for it; `None` if it has finished before.
///
/// # Errors
/// What others could not complete, because it is not in memory; or what went wrong otherwise.
pub fn run_stopping(
    case: &Case,
    cpu: usize,
    after: u64,
) -> Result<Option<Vec<Unfinished>>, String> {
    let setting = Setting::of(case);
    with_capacity!(setting.capacity, stop_on(case, &setting, cpu, after))
}

fn stop_on<C: Capacity>(
    case: &Case,
    setting: &Setting,
    cpu: usize,
    after: u64,
) -> Result<Option<Vec<Unfinished>>, String> {
    let world = World::<C>::new(&setting.setup);
    let explore = explore(case, setting, &world).with_stop(cpu, after);
    let (_, failure) = run_machine(case, setting, &world, explore, Heard::Nothing);
    let result = match failure {
        None => Ok(None),
        // One that goes on may be in the middle of a step.
        Some(failure) if failure.kind == FailureKind::OutOfEvents => Ok(None),
        Some(failure) if failure.kind == FailureKind::NoProgress => {
            let mut unfinished = Vec::new();
            let left =
                world
                    .engine
                    .unfinished(setting.setup.numbers[cpu], world.posted_data(), |one| {
                        unfinished.push(one)
                    });
            unfinished.sort_unstable();
            unfinished.dedup();
            left.map(|()| Some(unfinished)).map_err(str::to_owned)
        }
        Some(failure) => Err(failure.to_string()),
    };
    // CPUs have spaces loaded still.
    mem::forget(world);
    result
}

/// What may happen in a run.
fn explore<C: Capacity>(case: &Case, setting: &Setting, world: &World<C>) -> Explore {
    let chooser = Chooser::new(case.strategy(), case.cpus);
    let tlbs: Box<dyn Hardware> = match case.scenario {
        Some(_) => world.focused_adversary(),
        None => world.adversary(),
    };
    let most_events = MOST_EVENTS * case.cpus.div_ceil(FEW_CPUS) as u64;
    let explore = Explore::new(case.cpus, chooser, tlbs, most_events)
        .with_asid_slots(case.asid_slots())
        .with_guest_slots(setting.guest_slots)
        .with_clocks(setting.clocks.clone())
        .with_back_end(setting.back_end)
        .with_loads(setting.loads)
        .with_refused_self(setting.refuses_self)
        .with_losses(setting.losses);
    let explore = match setting.has_refusals {
        true => explore.with_refusals(),
        false => explore,
    };
    match setting.has_eager_spinners {
        true => explore.with_eager_spinners(),
        false => explore,
    }
}

/// Runs a case and tells what happens.
pub fn run_with_story(case: &Case) -> Report {
    run_as(case, Heard::Story).0
}

/// Runs a case, tells what happens, and records it for people to walk through.
pub fn run_to_walk(case: &Case) -> (Report, Walkthrough) {
    let (report, recorded) = run_as(case, Heard::Steps);
    let titles = Titles {
        title: &format!("A schedule of {} CPUs, seed {}", case.cpus, case.seed),
        command: &format!("./lab sim replay {case}"),
    };
    let recorded = recorded.expect("it was asked for");
    let walkthrough = recorded.explored(titles, report.failure.as_ref());
    (report, walkthrough)
}

/// How much of a run somebody wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    Nothing,
    Story,
    Steps,
}

fn run_as(case: &Case, heard: Heard) -> (Report, Option<Recorded>) {
    let setting = Setting::of(case);
    with_capacity!(setting.capacity, run_on(case, &setting, heard))
}

fn run_on<C: Capacity>(case: &Case, setting: &Setting, heard: Heard) -> (Report, Option<Recorded>) {
    let world = World::<C>::new(&setting.setup);
    let explore = explore(case, setting, &world);
    let (mut state, mut failure) = run_machine(case, setting, &world, explore, heard);
    if failure.is_none()
        && let Err(message) = world.check_end()
    {
        state.running = 0;
        state.fail(FailureKind::WrongCall, message);
        failure = state.failure.clone();
    }
    let recorded = Recorded::of(&mut state);
    let report = report(state, &world, failure);
    if report.failure.is_some() {
        // Spaces are still loaded on CPUs that no longer exist, which their drop would rightly refuse.
        mem::forget(world);
    }
    (report, recorded)
}

fn run_machine<C: Capacity>(
    case: &Case,
    setting: &Setting,
    world: &World<C>,
    explore: Explore,
    heard: Heard,
) -> (State, Option<Failure>) {
    let machine = Machine::new(case.cpus, Model::Explore(Box::new(explore)), || {
        world.handle_interrupt();
    });
    let mut machine = machine
        .with_numbers(&setting.setup.numbers)
        .with_nmi(|| world.nmi())
        .with_listeners(world);
    let threads = setting.setup.threads;
    if threads > 0 {
        machine = machine.with_host(world, threads);
    }
    if heard != Heard::Nothing {
        machine = machine.with_story();
    }
    if heard == Heard::Steps {
        machine = machine.with_steps(|address| world.line_name(address));
    }
    machine.run(programs(case, world, threads))
}

/// What each CPU does, and each kernel thread.
fn programs<'a, C: Capacity>(case: &Case, world: &'a World<C>, threads: usize) -> Vec<Program<'a>> {
    let plan = Plan {
        seed: case.seed,
        operations: case.operations,
        guests: case.guest_share(),
        tracks: case.tracks(),
    };
    let scenario = case.scenario;
    let program = |task| -> Program<'a> {
        match scenario {
            Some(scenario) => Box::new(move |_| world.play(scenario)),
            None if task < case.cpus => Box::new(move |_| world.run(plan)),
            None => Box::new(move |_| world.run_thread(plan)),
        }
    };
    (0..case.cpus + threads).map(program).collect()
}

fn report<C: Capacity>(mut state: State, world: &World<C>, failure: Option<Failure>) -> Report {
    let story = state.story.take().unwrap_or_default();
    let given_again = (state.explore()).map_or(0, |explore| explore.tags_given_again());
    let chooser = state.explore().map(|explore| &explore.chooser);
    Report {
        failure,
        questions: chooser.map_or(0, Chooser::asked),
        schedule: chooser.map_or_else(Schedule::default, |chooser| chooser.taken().clone()),
        events: state.events,
        conduct: Conduct::of(&state, &world.engine.watch().total_stats()),
        sightings: (world.sightings()).with(Sight::TagGivenAgain, given_again),
        story,
    }
}
