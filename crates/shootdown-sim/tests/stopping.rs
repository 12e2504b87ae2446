//! CPUs that stop for good, at any of their events: what they have begun is in memory, where others could complete it (docs/protocol/steps.md).

mod programs;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem;

use programs::{post, spin_while, turn_on};
use shootdown::calls::CallData;
use shootdown::sim::{Unfinished, place_of};
use shootdown::{CpuId, Cpus, Platform};
use shootdown_sim::explore::{Chooser, Explore, NoTlb, Strategy};
use shootdown_sim::fuzz::{Case, run_stopping};
use shootdown_sim::machine::Model;
use shootdown_sim::{Engine, FailureKind, Machine, PLATFORM, Program};

const SEEDS: u64 = 9000;
/// Events of a CPU in which it does most of what it does.
const EVENTS: u64 = 2_000;
/// What must have been found, or the schedules show nothing.
const FOUND: [Unfinished; 6] = [
    Unfinished::Claim,
    Unfinished::Leaf,
    Unfinished::Inbox,
    Unfinished::TakenData,
    Unfinished::Posting,
    Unfinished::Departure,
];

#[test]
fn what_a_stopped_cpu_has_begun_is_in_memory() {
    let mut found = BTreeMap::new();
    for seed in 1..=SEEDS {
        let case = Case::new(2 + seed as usize % 4, seed);
        // Spread.
        let after = 1 + seed * 2_654_435_761 % EVENTS;
        let cpu = seed as usize / 4 % case.cpus;
        match run_stopping(&case, cpu, after) {
            Ok(left) => {
                let left = left.into_iter().flatten();
                left.for_each(|one| *found.entry(one).or_insert(0) += 1);
            }
            Err(lost) => panic!("{case}, CPU {cpu} stops after {after} events: {lost}"),
        }
    }
    let missing: Vec<_> = FOUND
        .iter()
        .filter(|one| !found.contains_key(one))
        .collect();
    assert!(
        missing.is_empty(),
        "never found: {missing:?}; found: {found:?}"
    );
}

/// CPU 0, to which the others post.
const CPUS: usize = 3;

type Data = CallData<fn(CpuId)>;

/// A run in which `stopped` stops after `after` events; what it has left half done, or `None` if it came to its end. Each CPU runs `program` when it has come
/// online, CPU 0 with interrupts off.
fn stop(
    seed: u64,
    (stopped, after): (usize, u64),
    data: &[Data],
    program: impl Fn(usize, &Engine<Cpus<4>>),
) -> Option<Vec<Unfinished>> {
    let engine = Engine::<Cpus<4>>::new(CPUS);
    let chooser = Chooser::new(Strategy::Random(seed), CPUS);
    let explore = Explore::new(CPUS, chooser, Box::new(NoTlb), 0).with_stop(stopped, after);
    let machine = Machine::new(CPUS, Model::Explore(Box::new(explore)), || {
        engine.handle_ipi();
    });
    let programs = (0..CPUS).map(|me| -> Program<'_> {
        let (engine, program) = (&engine, &program);
        Box::new(move |_| {
            let interrupts = PLATFORM.irq_save();
            engine.online();
            if me > 0 {
                turn_on(interrupts);
                spin_while(|| engine.ready_cpus().len() < CPUS);
            }
            program(me, engine);
        })
    });
    let (_, failure) = machine.run(programs.collect());
    let failure = failure?;
    let place = format!("seed {seed}, CPU {stopped} stops after {after} events");
    assert_eq!(failure.kind, FailureKind::NoProgress, "{place}: {failure}");
    let (stopped, mut unfinished) = (CpuId::new(stopped as u32), Vec::new());
    let left = engine.unfinished(stopped, data.iter().map(place_of), |one| {
        unfinished.push(one);
    });
    assert_eq!(left, Ok(()), "{place}");
    mem::forget(engine);
    Some(unfinished)
}

/// In how many runs `wanted` was left half done: at each event of `stopped` that there is, with each of these seeds.
fn count(
    seeds: u64,
    wanted: Unfinished,
    run: impl Fn(u64, u64) -> Option<Vec<Unfinished>>,
) -> usize {
    let of_seed = |seed| {
        let runs = (1..).map_while(|after| run(seed, after));
        runs.filter(|left| left.contains(&wanted)).count()
    };
    (0..seeds).map(of_seed).sum()
}

/// CPU 0 has interrupts off until all are posted to it.
#[test]
fn posted_data_are_found_wherever_their_cpu_stops() {
    let taken = count(10, Unfinished::TakenData, |seed, after| {
        let data: [Data; 4] = [const { CallData::new(|_| ()) }; _];
        stop(seed, (0, after), &data, |me, engine| match me {
            0 => {
                spin_while(|| !data.iter().all(CallData::is_posted));
                turn_on(true);
                spin_while(|| data.iter().any(CallData::is_posted));
            }
            _ => {
                let mine = data.chunks(2).nth(me - 1).unwrap();
                assert!(mine.iter().all(|data| post(engine, CpuId::new(0), data)));
            }
        })
    });
    assert!(
        taken > 100,
        "{taken} times there were data that had been taken"
    );
}

/// CPU 1 and CPU 2 post the same data.
#[test]
fn data_name_who_has_posted_them_wherever_it_stops() {
    let posting = count(20, Unfinished::Posting, |seed, after| {
        let (data, left) = ([CallData::<fn(CpuId)>::new(|_| ())], Cell::new(CPUS - 1));
        stop(seed, (1, after), &data, |me, engine| match me {
            0 => {
                turn_on(true);
                spin_while(|| left.get() > 0);
            }
            _ => {
                // Refused while what the other one has posted has not run.
                (0..3).for_each(|_| _ = post(engine, CpuId::new(0), &data[0]));
                left.set(left.get() - 1);
            }
        })
    });
    assert!(
        posting > 10,
        "{posting} times data were marked and on no list"
    );
}
