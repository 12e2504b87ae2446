//! OSTD and the engine, interleaved: the same call, and the same flush, in one boot.

use alloc::vec::Vec;

use ostd::cpu::{CpuId, CpuSet};
use ostd::mm::PAGE_SIZE;
use ostd::mm::tlb::TlbFlushOp;
use ostd::smp::inter_processor_call;
use ostd::task::disable_preempt;
use shootdown::{CpuMask, FreedTables, Platform};
use spin::Once;

use crate::cpus;
use crate::platform::SHOOTDOWN;
use crate::spaces::{self, BASE, Flusher, Space};

/// Rounds of each, and how long they take at most: an emulator with fewer cores than CPUs may take long.
const ROUNDS: usize = 2000;
const ENOUGH_NS: u64 = 4_000_000_000;
/// Pages that are flushed one by one, at most.
const PAGES: [usize; 3] = [1, 8, 64];

/// The space that all CPUs have entered meanwhile.
static SPACE: Once<&'static Space> = Once::new();

/// What one side took.
#[derive(Debug, Default)]
struct Side {
    times_ns: Vec<u64>,
    interrupts: usize,
}

impl Side {
    fn run(&mut self, work: impl FnOnce()) {
        let (interrupts, begin) = (cpus::interrupts(), now_ns());
        work();
        self.times_ns.push(now_ns() - begin);
        // Handlers count after they have answered.
        let target = now_ns() + 20_000;
        while now_ns() < target {
            core::hint::spin_loop();
        }
        self.interrupts += cpus::interrupts() - interrupts;
    }

    /// Median and 99th percentile.
    fn percentiles(&mut self) -> [u64; 2] {
        self.times_ns.sort_unstable();
        let at = |per_mille: usize| self.times_ns[(self.times_ns.len() - 1) * per_mille / 1000];
        [at(500), at(990)]
    }
}

fn now_ns() -> u64 {
    SHOOTDOWN.platform().now_ns()
}

/// All contests.
pub fn run() {
    let all = 1..cpus::count();
    call("call 1", all.clone().take(1));
    if all.len() > 1 {
        call("call all", all.clone());
    }
    SPACE.call_once(|| {
        let space = Space::new();
        let frames: Vec<_> = (0..PAGES[2]).map(|_| spaces::frame()).collect();
        space.map(BASE, &frames);
        space
    });
    cpus::on_each(|| spaces::enter(SPACE.get().copied()));
    PAGES.iter().for_each(|pages| flush(*pages));
    cpus::on_each(|| spaces::enter(None));
}

/// Both, one after the other, each first in every second round.
fn contest(name: &str, mut work: impl FnMut(Flusher)) {
    let mut sides = [Side::default(), Side::default()];
    let begin = now_ns();
    for round in 0..ROUNDS {
        if now_ns() - begin > ENOUGH_NS {
            break;
        }
        let order = match round % 2 {
            0 => [(0, Flusher::Stock), (1, Flusher::Engine)],
            _ => [(1, Flusher::Engine), (0, Flusher::Stock)],
        };
        for (side, flusher) in order {
            sides[side].run(|| work(flusher));
        }
    }
    report(name, &mut sides);
}

fn report(name: &str, sides: &mut [Side; 2]) {
    let rounds = sides[0].times_ns.len();
    let [stock, engine] = sides;
    let per_round = |side: &Side| side.interrupts as f64 / rounds as f64;
    let interrupts = [per_round(stock), per_round(engine)];
    let (before, after) = (stock.percentiles(), engine.percentiles());
    let ratio = |at: usize| after[at] as f64 / before[at].max(1) as f64;
    say!(
        "{name:<14} before median {:>7} p99 {:>8} ns {:.2} interrupts   after median {:>7} p99 {:>8} ns {:.2} interrupts   ratio {:.2} p99 {:.2}   rounds={rounds}",
        before[0],
        before[1],
        interrupts[0],
        after[0],
        after[1],
        interrupts[1],
        ratio(0),
        ratio(1),
    );
}

/// A function that does nothing, on those CPUs.
fn call(name: &str, cpus: impl Iterator<Item = usize> + Clone) {
    let mut stock = CpuSet::new_empty();
    let mut engine = CpuMask::EMPTY;
    for cpu in cpus {
        stock.add(CpuId::try_from(cpu).expect("it exists"));
        engine.insert(shootdown::CpuId::new(cpu as u32));
    }
    contest(name, |flusher| match flusher {
        Flusher::Stock => inter_processor_call(&stock, || ()).wait(),
        Flusher::Engine => {
            SHOOTDOWN.call_many(&engine, &|_| ());
        }
    });
}

/// So many pages of a space that all CPUs have entered.
fn flush(pages: usize) {
    let space = SPACE.get().expect("`run` has made it");
    let range = BASE..BASE + pages * PAGE_SIZE;
    let guard = disable_preempt();
    let mut cursor = space
        .stock()
        .cursor_mut(&guard, &range)
        .expect("user addresses");
    let name = alloc::format!("flush {pages}");
    contest(&name, |flusher| match flusher {
        Flusher::Stock => {
            let flusher = cursor.flusher();
            flusher.issue_tlb_flush(TlbFlushOp::for_range(range.clone()));
            flusher.dispatch_tlb_flush();
            flusher.sync_tlb_flush();
        }
        Flusher::Engine => {
            SHOOTDOWN.flush(
                space.engine(),
                spaces::flush_range(BASE, pages),
                FreedTables::No,
            );
        }
    });
}
