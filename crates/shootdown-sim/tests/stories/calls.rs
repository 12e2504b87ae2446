//! Stories about calls.

use std::cell::RefCell;

use shootdown::{
    CallTargets, CpuId, CpuMask, FlushRange, FlushScope, FreedTables, Platform, calls::Wait,
};
use shootdown_sim::machine::context;
use shootdown_sim::{FailureKind, PLATFORM};

use crate::play::{explore, explore_offline};
use crate::scene::Scene;

const CPUS: usize = 3;

thread_local! {
    /// What posted functions ran, `(payload, cpu)`.
    static RUNS: RefCell<Vec<([u64; 4], usize)>> = const { RefCell::new(Vec::new()) };
}

fn insist(holds: bool, kind: FailureKind, story: impl FnOnce() -> String) {
    if !holds {
        context().fail(kind, story());
    }
}

/// How often the function with this payload ran on `cpu`.
fn runs(payload: [u64; 4], cpu: usize) -> usize {
    RUNS.with_borrow(|runs| runs.iter().filter(|run| **run == (payload, cpu)).count())
}

/// More posts than there are slots, each with words that must arrive whole, and once.
fn posts(scene: &Scene) {
    scene.online_all(CPUS);
    let me = context().cpu() as u64;
    for round in 0..8 {
        let word = 1 + me * 100 + round;
        let payload = [word, !word, word << 32, word];
        let wait = [Wait::None, Wait::Received, Wait::Done][round as usize % 3];
        let targets = CpuMask::first(CPUS);
        let ran_on = move |_: CpuId| {
            let cpu = context().cpu();
            RUNS.with_borrow_mut(|runs| runs.push((payload, cpu)));
        };
        scene.engine.submit(&targets, ran_on, wait).wait();
        for cpu in 0..CPUS {
            let count = runs(payload, cpu);
            let expected = if wait == Wait::Done { 1..=1 } else { 0..=1 };
            insist(expected.contains(&count), FailureKind::WrongCall, || {
                format!("post {payload:?} ran {count} times on cpu{cpu}")
            });
        }
    }
    // A call that waits comes after the posts of this CPU.
    scene.engine.call_many(CallTargets::Online, &|_: CpuId| ());
}

/// Slots are used again at once, and every payload arrives whole.
#[test]
fn reused_slot_delivers_every_payload_once() {
    explore_offline(&[
        |scene| {
            RUNS.with_borrow_mut(Vec::clear);
            posts(scene);
        },
        posts,
        posts,
    ]);
}

/// All CPUs call all others with interrupts off: nobody waits for somebody who does not serve.
#[test]
fn calls_with_interrupts_off_serve_each_other() {
    fn calls(scene: &Scene) {
        let state = PLATFORM.irq_save();
        for _ in 0..3 {
            let ran = std::sync::Mutex::new([0; CPUS]);
            let targets = scene.engine.call_many(CallTargets::Online, &|cpu: CpuId| {
                ran.lock().unwrap()[cpu.index()] += 1
            });
            let ran = ran.into_inner().unwrap();
            insist(
                targets == CpuMask::first(CPUS),
                FailureKind::WrongCall,
                || format!("a call to all went to {targets:?}"),
            );
            insist(ran == [1; CPUS], FailureKind::EarlyReturn, || {
                format!("a call that has returned ran {ran:?} times")
            });
        }
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
    }
    explore(&[calls, calls, calls]);
}

/// A function that flushes waits inside the handler; what others send meanwhile is put back and runs afterwards.
#[test]
fn calls_that_come_while_a_function_runs_are_not_lost() {
    fn calls(scene: &Scene) {
        let engine = Unshared(&scene.engine);
        let targets = CpuMask::first(CPUS);
        for _ in 0..2 {
            scene.engine.call_many(CallTargets::Online, &|_: CpuId| {
                let engine = &engine;
                engine
                    .0
                    .flush(FlushScope::Kernel, FlushRange::WHOLE, FreedTables::No);
            });
            let posted = scene.engine.submit(&targets, |_: CpuId| (), Wait::Done);
            context().work(1);
            posted.wait();
        }
    }
    explore(&[calls, calls, calls]);
}

/// What functions on virtual CPUs share: all of them run on one thread of the host.
struct Unshared<'a>(&'a crate::scene::Engine);

// SAFETY: a machine and all its coroutines live on one thread, see `Machine::run`.
unsafe impl Sync for Unshared<'_> {}
