//! Functions of which one run may do for several callers, and the check that it began after each of them had called.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::kernel::World;
use crate::kernel::calls::insist_here;
use crate::machine::{FailureKind, context};

/// What is lent: all callers name the same function at the same address. Two, because one run does for callers of one only.
static FUNCTIONS: [fn(CpuId); 2] = [|cpu| run(0, cpu), |cpu| run(1, cpu)];

thread_local! {
    /// Those of the running machine: the functions borrow nothing, so they find it here.
    static RUNS: RefCell<Rc<[Runs; FUNCTIONS.len()]>> = RefCell::new(fresh(0));
}

/// The runs of one function.
#[derive(Debug)]
struct Runs {
    /// The last caller's number.
    wanted: AtomicU64,
    /// The number that the last run on each CPU has seen.
    seen: Vec<AtomicU64>,
    begun: Vec<Cell<u64>>,
    over: Vec<Cell<u64>>,
}

fn fresh(cpus: usize) -> Rc<[Runs; FUNCTIONS.len()]> {
    Rc::new(FUNCTIONS.map(|_| Runs {
        wanted: AtomicU64::new(0),
        seen: (0..cpus).map(|_| AtomicU64::new(0)).collect(),
        begun: vec![Cell::new(0); cpus],
        over: vec![Cell::new(0); cpus],
    }))
}

/// For a new machine.
pub(super) fn forget_runs(cpus: usize) {
    RUNS.set(fresh(cpus));
}

/// What the function does: it looks at what is wanted, and says what it has seen.
fn run(which: usize, cpu: CpuId) {
    let here = insist_here(cpu);
    let runs = &RUNS.with_borrow(Rc::clone)[which];
    let count = |runs: &[Cell<u64>]| runs[here].set(runs[here].get() + 1);
    count(&runs.begun);
    let wanted = runs.wanted.load(Ordering::Relaxed);
    // Others may call meanwhile: this run is not theirs.
    context().work(1);
    runs.seen[here].store(wanted, Ordering::Relaxed);
    count(&runs.over);
}

impl<const N: usize> World<N>
where
    Cpus<N>: Capacity,
{
    /// Calls and waits. When it returns, a run that began after the call is over on every target, and has seen what was wanted.
    pub(super) fn call_idempotent(&self, which: usize, wanted: &CpuMask<N>) {
        let runs = &RUNS.with_borrow(Rc::clone)[which];
        let serial = runs.wanted.fetch_add(1, Ordering::Relaxed) + 1;
        let begun: Vec<u64> = runs.begun.iter().map(Cell::get).collect();
        let ran = self.engine.call_idempotent(wanted, &FUNCTIONS[which]);
        for cpu in self.indexes(&ran) {
            let (before, over) = (begun[cpu], runs.over[cpu].get());
            let seen = runs.seen[cpu].load(Ordering::Relaxed);
            if over <= before || seen < serial {
                let message = format!(
                    "call {serial} of function {which} returned after {over} runs on cpu{cpu}, the last of which saw {seen}; \
                     {before} had begun before it"
                );
                context().fail(FailureKind::EarlyReturn, message);
            }
        }
    }
}
