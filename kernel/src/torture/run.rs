//! Threads, time and verdict.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shootdown_torture::{Context, Plan, Torture, WorkerId};
use spin::Once;

use super::host::Machine;
use super::memory::TortureMemory;
use super::notes::{self, THREADS_PER_CPU};
use crate::arch::percpu;
use crate::backtrace;
use crate::boot::fail::boot_fail;
use crate::boot::{self, BootInfo};
use crate::console::print;
use crate::cpus::MAX_CPUS;
use crate::task::{self, Deadline, Tid};
use crate::time;

const NS_PER_S: u64 = 1_000_000_000;
/// A worker without a step for so many seconds is stuck. An emulator on a busy host may not run a virtual CPU for seconds.
const STUCK_S: u64 = 30;

static TORTURE: Torture<MAX_CPUS> = Torture::new();
static MACHINE: Once<Machine> = Once::new();
/// Workers go on.
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Timer interrupts that are in a step, or about to look at `RUNNING`.
static TICKS: AtomicUsize = AtomicUsize::new(0);
/// Workers that have ended.
static ENDED: AtomicUsize = AtomicUsize::new(0);
/// The numbers of the command line.
#[derive(Clone, Copy, Debug)]
struct Orders {
    seconds: u64,
    seed: u64,
}

static ORDERS: Once<Orders> = Once::new();

/// Starts the run that the command line asks for; false when it asks for none. Boot CPU, all CPUs schedule threads.
pub fn start_if_asked(boot: &BootInfo) -> bool {
    let Some(seconds) = number(boot, "torture") else {
        return false;
    };
    let seed = number(boot, "seed").unwrap_or(1);
    ORDERS.call_once(|| Orders { seconds, seed });
    spawn(direct, 0);
    true
}

fn number(boot: &BootInfo, name: &str) -> Option<u64> {
    let text = boot.option(name)?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => boot_fail!("{name}={text} is not a number; correct -append"),
    }
}

fn spawn(work: fn(usize) -> !, argument: usize) -> Tid {
    match task::start_kernel_thread("torture", work, argument) {
        Ok(tid) => tid,
        Err(errno) => boot_fail!("no thread for the torture: {errno:?}; use more memory (-m)"),
    }
}

/// The thread that leads the run.
fn direct(_: usize) -> ! {
    let orders = *ORDERS.get().expect("set before the thread started");
    let machine = MACHINE.call_once(|| Machine {
        memory: TortureMemory::new(),
    });
    TORTURE.begin(machine, &Plan::new(orders.seed));
    // ORDERING: publishes what `begin` set up; pairs with the acquires in `is_running`.
    RUNNING.store(true, Ordering::Release);
    let start_ns = time::now_ns();
    let workers = boot::info().cpus * THREADS_PER_CPU;
    for worker in 0..workers {
        spawn(work, worker);
    }
    let unstuck = supervise(machine, orders.seconds, workers);
    RUNNING.store(false, Ordering::SeqCst);
    if !unstuck || !all_end(workers) {
        backtrace::print_all();
        task::end_machine_with(1);
    }
    TORTURE.bring_all_online(machine);
    TORTURE.finish(machine);
    let summary = TORTURE.summary(machine, time::now_ns() - start_ns);
    print(format_args!("{}\n", summary.protocol()));
    task::end_machine_with(u8::from(summary.violations() > 0))
}

/// Lets the run go on for `seconds`, or until something is wrong; false when a worker is stuck.
fn supervise(machine: &Machine, seconds: u64, workers: usize) -> bool {
    let start_ns = time::now_ns();
    let mut last: Vec<(u64, u64)> = (0..workers).map(|_| (0, 0)).collect();
    for second in 1..=seconds {
        sleep_until(start_ns + second * NS_PER_S);
        for (worker, (steps, since)) in last.iter_mut().enumerate() {
            let now = TORTURE.steps(WorkerId::task(worker));
            if now != *steps {
                (*steps, *since) = (now, second);
            } else if second - *since >= STUCK_S {
                print(format_args!("torture: stuck worker={worker} steps={now}\n"));
                return false;
            }
        }
        let progress = TORTURE.progress(machine, time::now_ns() - start_ns);
        print(format_args!("{progress}\n"));
        if TORTURE.first_violation().is_some() {
            break;
        }
    }
    true
}

/// Waits for the last steps of all workers and of the timer's interrupts.
fn all_end(workers: usize) -> bool {
    let deadline = Deadline::after_ns(STUCK_S * NS_PER_S);
    while ENDED.load(Ordering::Acquire) < workers || TICKS.load(Ordering::SeqCst) > 0 {
        if deadline.has_passed() {
            print(format_args!("torture: stuck at the end\n"));
            return false;
        }
        task::doze(Deadline::after_ns(NS_PER_S / 1000));
    }
    true
}

fn sleep_until(at_ns: u64) {
    let deadline = Deadline::at_ns(at_ns);
    while !deadline.has_passed() {
        task::doze(deadline);
    }
}

fn is_running() -> bool {
    // ORDERING: acquires what `begin` set up; pairs with the release in `direct`.
    RUNNING.load(Ordering::Acquire)
}

/// A worker: one step after the other.
fn work(worker: usize) -> ! {
    notes::i_am(worker);
    let machine = MACHINE.get().expect("made before the threads");
    while is_running() {
        TORTURE.step(machine, WorkerId::task(worker), Context::Task);
    }
    // ORDERING: publishes the last step's results; pairs with the acquire in `all_end`.
    ENDED.fetch_add(1, Ordering::Release);
    loop {
        task::doze(Deadline::after_ns(NS_PER_S));
    }
}

/// Hook of the timer interrupt, interrupts off: the run's interrupt context. One load when there is no run.
#[inline]
pub fn tick() {
    if RUNNING.load(Ordering::Relaxed) {
        step_in_interrupt();
    }
}

#[cold]
fn step_in_interrupt() {
    // ORDERING: counted / look whether it runs, against stop / count in `direct` and `all_end`: either this sees the stop, or
    // the end waits for this step.
    TICKS.fetch_add(1, Ordering::SeqCst);
    if RUNNING.load(Ordering::SeqCst)
        && let Some(machine) = MACHINE.get()
    {
        let worker = WorkerId::interrupts_of(percpu::cpu_id());
        // With preemption off it has interrupted the holder of a lock, perhaps.
        let context = match percpu::preempt_count() {
            0 => Context::Interrupt,
            _ => Context::InterruptUnderLock,
        };
        TORTURE.step(machine, worker, context);
    }
    // ORDERING: publishes the step's results; pairs with the load in `all_end`.
    TICKS.fetch_sub(1, Ordering::Release);
}
