//! Functions that wait for each other, so that no CPU waits in the engine: each CPU polls inside one, and says so.

use std::cell::Cell;

use shootdown::watch::{Activity, FoundBy, Stall};
use shootdown::{CallTargets, CpuId, Cpus, Platform};
use shootdown_sim::machine::{Model, context};
use shootdown_sim::timed::{Preset, Timed};
use shootdown_sim::{Engine, Machine, PLATFORM};

const CPUS: usize = 2;
const STALL_NS: u64 = 100_000;

/// Runs on one thread.
struct Unshared<T>(T);

// SAFETY: a machine and all its coroutines live on one thread.
unsafe impl<T> Sync for Unshared<T> {}

impl<T> Unshared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

/// Each CPU calls all, `calls` times; the functions spin for so many ns, polling, or until those of a call have come together, which they cannot. What was reported.
fn spin_inside_functions(calls: usize, spin_ns: u64) -> Vec<Stall> {
    let engine = Engine::<Cpus<2>>::new(CPUS);
    engine.watch().set_stall_ns(STALL_NS);
    let timed = Timed::new(CPUS, Preset::named("haswell-ep").unwrap().costs());
    let machine = Machine::new(CPUS, Model::Timed(Box::new(timed)), || engine.handle_ipi());
    let state = machine.run_each("functions that spin", |_, _| {
        engine.online();
        while engine.ready_cpus().len() < CPUS {
            context().work(10_000);
        }
        // So that both begin at once, and each is in its own part when the other's function comes.
        let irq = PLATFORM.irq_save();
        for _ in 0..calls {
            let came = Unshared(Cell::new(0));
            let spin = |_: CpuId| {
                let came = came.get();
                came.set(came.get() + 1);
                let since_ns = PLATFORM.now_ns();
                while came.get() < CPUS && PLATFORM.now_ns() - since_ns < spin_ns {
                    engine.poll();
                    PLATFORM.relax();
                }
            };
            engine.call_many(CallTargets::Online, &spin);
        }
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(irq) };
    });
    state.stalls
}

#[test]
fn functions_that_wait_for_each_other_are_named() {
    let stalls = spin_inside_functions(1, 10 * STALL_NS);
    for cpu in [0, 1].map(CpuId::new) {
        let of_it = |stall: &&Stall| stall.found_by == FoundBy::Inside && stall.target == cpu;
        let stalls: Vec<_> = stalls.iter().filter(of_it).collect();
        let waited: Vec<_> = stalls
            .iter()
            .map(|stall| stall.waited_ns / STALL_NS)
            .collect();
        assert_eq!(waited, [1, 2, 4, 8], "once a doubling");
        let is_named = |stall: &&Stall| match stall.doing {
            Activity::Function(name) => name.contains("spin_inside_functions"),
            _ => false,
        };
        assert!(stalls.iter().all(is_named), "{stalls:?}");
    }
}

/// Many that each spin for a while, the same one again and again.
#[test]
fn functions_that_end_in_time_are_not_named() {
    assert_eq!(spin_inside_functions(20, STALL_NS / 3), []);
}
