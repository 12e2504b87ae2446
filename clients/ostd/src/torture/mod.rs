//! The random mix of `shootdown-torture` on OSTD: calls, posts, user pages in OSTD's spaces, switches between them, policies.

mod host;
mod memory;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shootdown::{CpuId, Platform};
use shootdown_torture::{Context, Memory, Plan, Torture, WorkerId};
use spin::Once;

use crate::platform::{MAX_CPUS, SHOOTDOWN, this_cpu};
use crate::{cpus, machine};
use host::Machine;
use memory::UserPages;

const NS_PER_S: u64 = 1_000_000_000;
/// A worker without a step for so long is stuck. An emulator on a busy host may not run a virtual CPU for seconds.
const STUCK_NS: u64 = 30 * NS_PER_S;
const SEED: u64 = 1;
/// Seconds between lines of progress.
const REPORT_S: u64 = 10;
/// Of so many timer interrupts, one does a step.
const TICKS_PER_STEP: usize = 8;

static TORTURE: Torture<MAX_CPUS> = Torture::new();
static MACHINE: Once<Machine> = Once::new();
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Timer interrupts that are in a step, or about to look at `RUNNING`.
static STEPS: AtomicUsize = AtomicUsize::new(0);
static TICKS: AtomicUsize = AtomicUsize::new(0);

/// Runs it for so long; how many promises were broken.
pub fn run(seconds: u64) -> u64 {
    let host = MACHINE.call_once(|| Machine {
        memory: UserPages::new(),
    });
    TORTURE.begin(host, &Plan::new(SEED));
    // ORDERING: publishes what `begin` set up; pairs with the loads in `work` and `tick`.
    RUNNING.store(true, Ordering::SeqCst);
    let begin = now_ns();
    (1..cpus::count()).for_each(|cpu| cpus::begin(cpu, work));
    supervise(host, begin, seconds);
    RUNNING.store(false, Ordering::SeqCst);
    host.memory.enter(None);
    (1..cpus::count()).for_each(cpus::end);
    while STEPS.load(Ordering::SeqCst) > 0 {
        machine::halt();
    }
    TORTURE.finish(host);
    let summary = TORTURE.summary(host, now_ns() - begin);
    say!("{}", summary.protocol());
    summary.violations()
}

fn now_ns() -> u64 {
    SHOOTDOWN.platform().now_ns()
}

/// The boot CPU's worker: it also looks whether the others get on.
fn supervise(host: &'static Machine, begin: u64, seconds: u64) {
    let mut last = [(0, begin); MAX_CPUS];
    let mut next = REPORT_S;
    while TORTURE.first_violation().is_none() {
        TORTURE.step(host, WorkerId::task(0), Context::Task);
        let now = now_ns();
        if now - begin >= seconds * NS_PER_S {
            return;
        }
        check_progress(&mut last, now);
        if now - begin >= next * NS_PER_S {
            say!("{}", TORTURE.progress(host, now - begin));
            next += REPORT_S;
        }
    }
}

/// Ends the machine if a worker is stuck.
fn check_progress(last: &mut [(u64, u64); MAX_CPUS], now: u64) {
    for (worker, (steps, since)) in last.iter_mut().enumerate().take(cpus::count()) {
        let has = TORTURE.steps(WorkerId::task(worker));
        if has != *steps {
            (*steps, *since) = (has, now);
        } else if now - *since >= STUCK_NS {
            say!("torture: stuck worker={worker} steps={has}");
            machine::end(false);
        }
    }
}

/// The other CPUs' workers: one step after the other.
fn work() {
    let host = MACHINE.get().expect("`run` has made it");
    while RUNNING.load(Ordering::Acquire) {
        TORTURE.step(host, WorkerId::task(this_cpu()), Context::Task);
    }
    host.memory.enter(None);
}

/// In a timer interrupt, interrupts off: the run's interrupt context.
pub fn tick() {
    if !TICKS
        .fetch_add(1, Ordering::Relaxed)
        .is_multiple_of(TICKS_PER_STEP)
    {
        return;
    }
    // ORDERING: counted / look whether it runs, against stop / count in `run`: either this sees the stop, or the end waits for this step.
    STEPS.fetch_add(1, Ordering::SeqCst);
    if RUNNING.load(Ordering::SeqCst) {
        let host = MACHINE.get().expect("`run` has made it");
        let cpu = CpuId::new(this_cpu() as u32);
        // OSTD does not say whether it has interrupted the holder of a lock.
        TORTURE.step(
            host,
            WorkerId::interrupts_of(cpu),
            Context::InterruptUnderLock,
        );
    }
    // ORDERING: publishes the step's results; pairs with the load in `run`.
    STEPS.fetch_sub(1, Ordering::SeqCst);
}
