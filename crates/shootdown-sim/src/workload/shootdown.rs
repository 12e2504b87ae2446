//! One shootdown from CPU 0 to any number of targets that spin in user mode.

use std::cell::Cell;
use std::time::{Duration, Instant};

use shootdown::{AddressSpace, Capacity, FlushRange, FreedTables, PageSize, Policy};

use crate::machine::{Engine, Machine, kernel_root_at, root_at};
use crate::timed::{Costs, Timed};
use crate::workload::engine::with_size;

/// Long enough for everybody to be in user mode with the space loaded.
const SETTLE_PS: u64 = 1_000_000_000;

/// Shootdowns of a run; the one that this host simulated fastest counts, for it did the least else meanwhile.
const SHOTS: usize = 5;

/// What one shootdown took, after one that warmed everything up.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    /// On the initiator, in virtual picoseconds.
    pub time_ps: u64,
    /// Until the request was published and the interrupts sent.
    pub submit_ps: u64,
    /// Cache lines that moved until every target was back in user mode.
    pub lines: u64,
    /// Events until then.
    pub events: u64,
    /// How long this machine took to simulate them.
    pub wall: Duration,
}

/// Flushes one page of a space that `targets` CPUs and the initiator have loaded. Large machines need
/// [`on_large_stack`](crate::workload::on_large_stack).
///
/// # Panics
/// When the engine fails.
pub fn shoot(targets: usize, policy: Policy, costs: &Costs) -> Shot {
    with_size!(targets + 1, shoot_sized(targets, policy, costs))
}

// Not inlined: see `madvise`.
#[inline(never)]
fn shoot_sized<C: Capacity>(targets: usize, policy: Policy, costs: &Costs) -> Shot {
    let engine = Engine::<C>::new(targets + 1);
    engine.set_policy(policy);
    let space = Box::new(AddressSpace::new(&engine, root_at(1)));
    let (shot, is_over) = (Cell::new(None), Cell::new(false));
    let model = Timed::new(targets + 1, costs.clone());
    let machine = Machine::timed(model, || engine.handle_ipi());
    machine.run_each("the engine in one shootdown", |cpu, context| {
        engine.online();
        engine.switch_to(None, &space);
        let flush = || {
            let range = FlushRange::pages(1 << 12, 1, PageSize::SIZE_4K);
            let started_ps = context.now_ps();
            let ticket = engine.submit_flush(&*space, range, FreedTables::No);
            let submitted_ps = context.now_ps();
            ticket.wait();
            let times = (submitted_ps - started_ps, context.now_ps() - started_ps);
            context.work(SETTLE_PS);
            times
        };
        let counts = || {
            let lines = context.timed(|timed| timed.lines.transfers().sum());
            (context.events(), lines)
        };
        if cpu == 0 {
            context.work(SETTLE_PS);
            flush();
            let shots = [(); SHOTS].map(|()| {
                let (wall, before) = (Instant::now(), counts());
                let (submit_ps, time_ps) = flush();
                let (wall, after) = (wall.elapsed(), counts());
                Shot {
                    time_ps,
                    submit_ps,
                    lines: after.1 - before.1,
                    events: after.0 - before.0,
                    wall,
                }
            });
            shot.set(shots.into_iter().min_by_key(|shot| shot.wall));
            is_over.set(true);
            flush();
        } else {
            while !is_over.get() {
                context.wait_for_interrupt();
            }
        }
        engine.switch_away(&space, kernel_root_at(0));
    });
    shot.take().expect("the initiator has finished")
}
