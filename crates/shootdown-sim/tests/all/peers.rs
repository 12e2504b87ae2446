//! The other kernels' algorithms and the engine's under exploration: every call runs once on each of its targets, sees what
//! its caller wrote before, and shows its caller what it wrote.

use std::cell::Cell;

use shootdown::shim::{AtomicU64, Ordering, PlainCell};
use shootdown::{CpuId, CpuMask, Cpus, Platform};
use shootdown_sim::explore::{Chooser, Explore, NoTlb, Strategy};
use shootdown_sim::machine::Model;
use shootdown_sim::workload::{Built, Peer};
use shootdown_sim::{Failure, Machine, PLATFORM, Program};

const N: usize = 8;
const CALLS: usize = 4;
const MOST_EVENTS: u64 = 200_000;
const SCHEDULES: u64 = 1_500;

/// What one CPU hands to the functions that it calls, and gets back from each target.
struct Desk {
    argument: PlainCell<u64>,
    results: [PlainCell<u64>; N],
    runs: [Cell<u64>; N],
}

impl Desk {
    fn new() -> Self {
        Self {
            argument: PlainCell::new(0),
            results: std::array::from_fn(|_| PlainCell::new(0)),
            runs: std::array::from_fn(|_| Cell::new(0)),
        }
    }
}

/// The called function's captures.
struct Function<'a>(&'a Desk);

// SAFETY: the virtual CPUs are coroutines of one thread; the cells that exploration watches find races.
unsafe impl Sync for Function<'_> {}

impl Function<'_> {
    fn run(&self, cpu: CpuId) {
        let desk = self.0;
        // SAFETY: 1. what the check is about: a race here ends the run.
        let argument = unsafe { desk.argument.read() };
        // SAFETY: 1. as above.
        unsafe { desk.results[cpu.index()].write(argument + cpu.index() as u64) };
        let runs = &desk.runs[cpu.index()];
        runs.set(runs.get() + 1);
    }
}

/// One schedule of `cpus` CPUs that all call each other.
fn explore(peer: Peer, cpus: usize, seed: u64) -> Option<Failure> {
    let calls = Built::<shootdown::Cpus<N>>::new(peer, cpus);
    let desks: Vec<Desk> = (0..cpus).map(|_| Desk::new()).collect();
    let online = AtomicU64::new(0);
    let chooser = Chooser::new(Strategy::Random(seed), cpus);
    let model = Explore::new(cpus, chooser, Box::new(NoTlb), MOST_EVENTS);
    let machine = Machine::new(cpus, Model::Explore(Box::new(model)), || {
        calls.calls().handle_ipi();
    });
    let programs = (0..cpus).map(|cpu| -> Program<'_> {
        let (calls, desk, online) = (&calls, &desks[cpu], &online);
        let mut random = fastrand::Rng::with_seed(seed ^ cpu as u64);
        Box::new(move |_| {
            calls.online();
            // ORDERING: who has seen all of them sees that they are online.
            online.fetch_add(1, Ordering::AcqRel);
            while online.load(Ordering::Acquire) < cpus as u64 {
                PLATFORM.relax();
            }
            for call in 0..CALLS as u64 {
                let targets: CpuMask<Cpus<N>> = (0..cpus as u32)
                    .filter(|_| random.bool())
                    .map(CpuId::new)
                    .collect();
                let before: Vec<u64> = desk.runs.iter().map(Cell::get).collect();
                // SAFETY: 1. the last call has returned.
                unsafe { desk.argument.write(call * 100) };
                let function = Function(desk);
                calls.calls().call(&targets, &|cpu| function.run(cpu));
                for target in targets.iter() {
                    // SAFETY: 1. the target has run the function.
                    let result = unsafe { desk.results[target.index()].read() };
                    assert_eq!(result, call * 100 + target.index() as u64, "on {target}");
                }
                for (target, before) in before.iter().enumerate() {
                    let due = u64::from(targets.contains(CpuId::new(target as u32)));
                    assert_eq!(
                        desk.runs[target].get(),
                        before + due,
                        "runs on CPU {target}"
                    );
                }
            }
        })
    });
    machine.run(programs.collect()).1
}

fn survives(peer: Peer) {
    for seed in 0..SCHEDULES {
        for cpus in [2, 4] {
            let failure = explore(peer, cpus, seed);
            assert_eq!(failure, None, "{peer} with {cpus} CPUs, seed {seed}");
        }
    }
}

#[test]
fn mailbox_calls_are_run_once_and_in_order() {
    survives(Peer::Mailbox);
}

#[test]
fn calls_under_one_lock_are_run_once_and_in_order() {
    survives(Peer::OneLock);
}

#[test]
fn calls_of_the_task_set_are_run_once_and_in_order() {
    survives(Peer::TaskSet);
}

#[test]
fn queued_calls_are_run_once_and_in_order() {
    survives(Peer::CallQueues);
}

#[test]
fn calls_on_the_scoreboard_are_run_once_and_in_order() {
    survives(Peer::Scoreboard);
}

#[test]
fn our_calls_are_run_once_and_in_order() {
    survives(Peer::Shootdown);
}

#[test]
fn calls_by_bits_are_run_once_and_in_order() {
    Peer::DESIGNS.into_iter().for_each(survives);
}

#[test]
fn calls_of_the_series_are_run_once_and_in_order() {
    Peer::SERIES.into_iter().for_each(survives);
}
