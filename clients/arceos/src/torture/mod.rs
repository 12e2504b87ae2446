//! The random mix of `shootdown-torture` on ArceOS: calls, posts, kernel pages, policies, preemption. No spaces: ArceOS has one.

mod host;
mod memory;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;

use alloc::vec::Vec;
use axstd::{println, thread};
use shootdown::CpuId;
use shootdown_torture::{Context, Plan, Torture, WorkerId};

use crate::platform::CPUS;
use crate::{arch, clock, threads};
use host::Machine;

const NS_PER_S: u64 = 1_000_000_000;
/// So that they preempt each other.
const THREADS_PER_CPU: usize = 2;
const WORKERS: usize = CPUS * THREADS_PER_CPU;
/// A worker without a step for so long is stuck. An emulator on a busy host may not run a virtual CPU for seconds.
const STUCK_NS: u64 = 30 * NS_PER_S;
const SEED: u64 = 1;
/// Seconds between lines of progress.
const REPORT_S: u64 = 10;

static TORTURE: Torture<CPUS> = Torture::new();
static MACHINE: Machine = Machine::new();
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Timer interrupts that are in a step, or about to look at `RUNNING`.
static TICKS: AtomicUsize = AtomicUsize::new(0);

/// Runs it for so long; how many promises were broken.
pub fn run(seconds: u64) -> u64 {
    MACHINE.memory.stock();
    TORTURE.begin(&MACHINE, &Plan::new(SEED));
    // ORDERING: publishes what `begin` set up; pairs with the acquire in `work` and `tick`.
    RUNNING.store(true, Ordering::Release);
    let begin = clock::now_ns();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| threads::spawn_on(worker % CPUS, move || work(worker)))
        .collect();
    supervise(begin, seconds);
    RUNNING.store(false, Ordering::SeqCst);
    for worker in workers {
        worker.join().expect("threads do not fail");
    }
    while TICKS.load(Ordering::SeqCst) > 0 {
        thread::yield_now();
    }
    TORTURE.finish(&MACHINE);
    let summary = TORTURE.summary(&MACHINE, clock::now_ns() - begin);
    println!("{}", summary.protocol());
    summary.violations()
}

/// Lets the run go on until its end, or until something is wrong.
fn supervise(begin: u64, seconds: u64) {
    let mut last = [(0, begin); WORKERS];
    let mut next = REPORT_S;
    while TORTURE.first_violation().is_none() {
        let now = clock::now_ns();
        if now - begin >= seconds * NS_PER_S {
            return;
        }
        thread::sleep(Duration::from_millis(100));
        check_progress(&mut last, now);
        if now - begin >= next * NS_PER_S {
            println!("{}", TORTURE.progress(&MACHINE, now - begin));
            next += REPORT_S;
        }
    }
}

/// Ends the machine if a worker is stuck.
fn check_progress(last: &mut [(u64, u64); WORKERS], now: u64) {
    for (worker, (steps, since)) in last.iter_mut().enumerate() {
        let has = TORTURE.steps(WorkerId::task(worker));
        if has != *steps {
            (*steps, *since) = (has, now);
        } else if now - *since >= STUCK_NS {
            println!("torture: stuck worker={worker} steps={has}");
            arch::end(false);
        }
    }
}

/// A worker: one step after the other.
fn work(worker: usize) {
    while RUNNING.load(Ordering::Acquire) {
        TORTURE.step(&MACHINE, WorkerId::task(worker), Context::Task);
    }
}

/// After a timer interrupt, interrupts off: the run's interrupt context.
pub fn tick() {
    // ORDERING: counted / look whether it runs, against stop / count in `run`: either this sees the stop, or the end waits for this step.
    TICKS.fetch_add(1, Ordering::SeqCst);
    if RUNNING.load(Ordering::SeqCst) {
        let cpu = CpuId::new(axhal::percpu::this_cpu_id() as u32);
        // ArceOS does not say whether it has interrupted the holder of a lock.
        let context = Context::InterruptUnderLock;
        TORTURE.step(&MACHINE, WorkerId::interrupts_of(cpu), context);
    }
    // ORDERING: publishes the step's results; pairs with the load in `run`.
    TICKS.fetch_sub(1, Ordering::Release);
}
