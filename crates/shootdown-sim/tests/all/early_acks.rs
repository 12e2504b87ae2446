//! A task that is interrupted goes on, however many flushes come.

use std::cell::Cell;

use shootdown::{AddressSpace, CpuId, Cpus, FlushRange, FreedTables, PageSize, Policy};
use shootdown_sim::machine::{Model, context};
use shootdown_sim::timed::{Preset, Timed};
use shootdown_sim::{Engine, Machine, Program, kernel_root_at, root_at};

const CPUS: usize = 5;
const FLUSHES: usize = 200;
/// So many are acknowledged early while the task does not go on, and what one handler reads of a ring.
const MOST: u64 = 64 + 8;

/// CPU 0 has a task; the others flush its space again as soon as the flush before is acknowledged. The most flushes that it has acknowledged early between two steps of its task.
fn most_early_acks(policy: Policy) -> u64 {
    let engine = Engine::<Cpus<8>>::new(CPUS);
    engine.set_policy(policy);
    let space = AddressSpace::new(&engine, root_at(1));
    let (left, most, goes) = (Cell::new(CPUS - 1), Cell::new(0), Cell::new(false));
    let costs = Preset::named("haswell-ep").unwrap().costs();
    let timed = Timed::new(CPUS, costs);
    let machine = Machine::new(CPUS, Model::Timed(Box::new(timed)), || engine.handle_ipi());
    let programs = (0..CPUS).map(|me| -> Program<'_> {
        let (engine, space, left, most, goes) = (&engine, &space, &left, &most, &goes);
        Box::new(move |_| {
            engine.online();
            while engine.ready_cpus().len() < CPUS {
                context().work(10_000);
            }
            if me > 0 {
                while !goes.get() {
                    context().work(10_000);
                }
                for _ in 0..FLUSHES {
                    let pages = FlushRange::pages(0, 30, PageSize::SIZE_4K);
                    engine.flush(space, pages, FreedTables::No);
                }
                left.set(left.get() - 1);
                return;
            }
            engine.switch_to(None, space);
            goes.set(true);
            let mut before = 0;
            let mut step = || {
                let now = engine.watch().stats(CpuId::new(0)).early_acks;
                most.set(most.get().max(now - before));
                before = now;
            };
            while left.get() > 0 {
                context().work(1_000);
                step();
            }
            engine.switch_away(space, kernel_root_at(0));
        })
    });
    let (_, failure) = machine.run(programs.collect());
    assert_eq!(failure, None);
    most.get()
}

#[test]
fn a_task_goes_on_under_flushes_by_inbox() {
    let most = most_early_acks(Policy::BEST);
    assert!((2..=MOST).contains(&most), "{most}");
}

#[test]
fn a_task_goes_on_under_flushes_by_ring() {
    let most = most_early_acks(Policy::BEST.with_broadcast_from(1));
    assert!((2..=MOST).contains(&most), "{most}");
}
