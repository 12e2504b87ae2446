//! CPUs that stop for good, at any of their events: what they have begun is in memory, where others could complete it (docs/protocol/steps.md).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem;

use shootdown::calls::CallData;
use shootdown::sim::{Unfinished, place_of};
use shootdown::{CpuId, Cpus, Platform};
use shootdown_sim::explore::{Chooser, Explore, NoTlb, Strategy};
use shootdown_sim::fuzz::{Case, run_stopping};
use shootdown_sim::machine::Model;
use shootdown_sim::{Engine, FailureKind, Machine, PLATFORM, Program};

const SEEDS: u64 = 3000;
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
        // Spread, and none twice.
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

/// Data that the others have for CPU 0, each.
const DATA: usize = 2;
const POSTERS: usize = 2;

/// CPU 0 has interrupts off until all are posted to it, and then stops after `after` events; what it has left half done, or `None` if it came to its end.
fn stop_amid_posted(seed: u64, after: u64) -> Option<Vec<Unfinished>> {
    const CPUS: usize = 1 + POSTERS;
    let engine = Engine::<Cpus<4>>::new(CPUS);
    let data: [CallData<fn(CpuId)>; DATA * POSTERS] = [const { CallData::new(|_| ()) }; _];
    let chooser = Chooser::new(Strategy::Random(seed), CPUS);
    let explore = Explore::new(CPUS, chooser, Box::new(NoTlb), 0).with_stop(0, after);
    let machine = Machine::new(CPUS, Model::Explore(Box::new(explore)), || {
        engine.handle_ipi();
    });
    let all_online = || {
        while engine.ready_cpus().len() < CPUS {
            PLATFORM.relax();
        }
    };
    let programs = (0..CPUS).map(|me| -> Program<'_> {
        let (engine, data) = (&engine, &data);
        Box::new(move |_| {
            let interrupts = PLATFORM.irq_save();
            engine.online();
            if me > 0 {
                // SAFETY: 1. saved above.
                unsafe { PLATFORM.irq_restore(interrupts) };
                all_online();
                for data in &data[(me - 1) * DATA..me * DATA] {
                    // SAFETY: it outlives the run, after which no CPU of this engine does anything.
                    let data: &'static CallData<fn(CpuId)> = unsafe { &*std::ptr::from_ref(data) };
                    engine.post_data(CpuId::new(0), data).unwrap();
                }
                return;
            }
            while !data.iter().all(CallData::is_posted) {
                PLATFORM.relax();
            }
            // SAFETY: 1. as above.
            unsafe { PLATFORM.irq_restore(interrupts) };
            while data.iter().any(CallData::is_posted) {
                PLATFORM.relax();
            }
        })
    });
    let (_, failure) = machine.run(programs.collect());
    let failure = failure?;
    assert_eq!(
        failure.kind,
        FailureKind::NoProgress,
        "seed {seed}, {after} events: {failure}"
    );
    let mut unfinished = Vec::new();
    let left = engine.unfinished(CpuId::new(0), data.iter().map(place_of), |one| {
        unfinished.push(one)
    });
    assert_eq!(
        left,
        Ok(()),
        "seed {seed}, CPU 0 stops after {after} events"
    );
    mem::forget(engine);
    Some(unfinished)
}

#[test]
fn posted_data_are_found_wherever_their_cpu_stops() {
    let mut taken = 0;
    for seed in 0..10 {
        let mut after = 1;
        while let Some(left) = stop_amid_posted(seed, after) {
            taken += usize::from(left.contains(&Unfinished::TakenData));
            after += 1;
        }
    }
    assert!(
        taken > 100,
        "{taken} times there were data that had been taken"
    );
}

/// CPU 1 and CPU 2 post the same data to CPU 0, and CPU 1 stops after `after` events; what it has left half done, or `None` if it came to its end.
fn stop_amid_posting(seed: u64, after: u64) -> Option<Vec<Unfinished>> {
    const CPUS: usize = 3;
    let engine = Engine::<Cpus<4>>::new(CPUS);
    let data: CallData<fn(CpuId)> = CallData::new(|_| ());
    let left = Cell::new(CPUS - 1);
    let chooser = Chooser::new(Strategy::Random(seed), CPUS);
    let explore = Explore::new(CPUS, chooser, Box::new(NoTlb), 0).with_stop(1, after);
    let machine = Machine::new(CPUS, Model::Explore(Box::new(explore)), || {
        engine.handle_ipi();
    });
    let programs = (0..CPUS).map(|me| -> Program<'_> {
        let (engine, data, left) = (&engine, &data, &left);
        Box::new(move |_| {
            let interrupts = PLATFORM.irq_save();
            engine.online();
            // SAFETY: 1. saved above.
            unsafe { PLATFORM.irq_restore(interrupts) };
            while engine.ready_cpus().len() < CPUS {
                PLATFORM.relax();
            }
            if me == 0 {
                while left.get() > 0 {
                    PLATFORM.relax();
                }
                return;
            }
            // SAFETY: it outlives the run, after which no CPU of this engine does anything.
            let data: &'static CallData<fn(CpuId)> = unsafe { &*std::ptr::from_ref(data) };
            for _ in 0..3 {
                // Busy while the other one's has not run.
                let _ = engine.post_data(CpuId::new(0), data);
            }
            left.set(left.get() - 1);
        })
    });
    let (_, failure) = machine.run(programs.collect());
    let failure = failure?;
    assert_eq!(
        failure.kind,
        FailureKind::NoProgress,
        "seed {seed}, {after} events: {failure}"
    );
    let mut unfinished = Vec::new();
    let found = engine.unfinished(CpuId::new(1), [place_of(&data)].into_iter(), |one| {
        unfinished.push(one)
    });
    assert_eq!(
        found,
        Ok(()),
        "seed {seed}, CPU 1 stops after {after} events"
    );
    mem::forget(engine);
    Some(unfinished)
}

#[test]
fn data_name_who_has_posted_them_wherever_it_stops() {
    let mut posting = 0;
    for seed in 0..20 {
        let mut after = 1;
        while let Some(left) = stop_amid_posting(seed, after) {
            posting += usize::from(left.contains(&Unfinished::Posting));
            after += 1;
        }
    }
    assert!(
        posting > 10,
        "{posting} times data were marked and on no list"
    );
}
