//! Command line, threads and verdict.

use core::sync::atomic::{AtomicBool, Ordering};

use shootdown::{CpuId, CpuMask};
use shootdown_callbench::{Bench, Plan};
use spin::Once;

use super::lines;
use super::machine::{MEASURED, Machine, TALLIES};
use crate::arch::percpu;
use crate::boot::fail::boot_fail;
use crate::boot::{self, BootInfo};
use crate::cpus::MAX_CPUS;
use crate::errno::Errno;
use crate::task::{self, Deadline};

const NS_PER_S: u64 = 1_000_000_000;
/// Between two looks at whether a run is over: seldom, for whoever looks disturbs it.
const LOOK_NS: u64 = 100_000_000;

static BENCH: Once<Bench<Machine, MAX_CPUS>> = Once::new();
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// What follows a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sequel {
    /// The machine ends.
    End,
    /// The program that asked goes on.
    GoOn,
}

/// Starts the run that the command line asks for; false when it asks for none. Boot CPU, all CPUs schedule threads.
pub fn start_if_asked(boot: &BootInfo) -> bool {
    let Some(words) = boot.option("calls") else {
        return false;
    };
    let plan = match Plan::parse(words) {
        Ok(plan) => plan,
        Err(mistake) => boot_fail!("calls={words}: {mistake}; correct -append"),
    };
    if boot.cpus < 2 {
        boot_fail!("calls={words}: one CPU has nobody to call; use more CPUs (-smp)");
    }
    IS_ASKED_FOR.store(true, Ordering::Relaxed);
    if let Err(errno) = start(plan, Sequel::End) {
        boot_fail!("no thread for the calls: {errno:?}; use more memory (-m)");
    }
    true
}

/// Carries out the plan of a program; returns when it is done and [`lines`](lines::lines) has what it found. All CPUs are online and have
/// nothing else to do, if figures are to mean anything.
///
/// # Errors
/// ENODEV on one CPU, which has nobody to call; EINVAL for a plan that makes no sense; EBUSY if there was a run already; as
/// [`task::start_kernel_thread`].
pub fn run(words: &str) -> Result<(), Errno> {
    if boot::info().cpus < 2 {
        return Err(Errno::ENODEV);
    }
    let plan = Plan::parse(words).map_err(|_| Errno::EINVAL)?;
    if IS_ASKED_FOR.swap(true, Ordering::Relaxed) {
        return Err(Errno::EBUSY);
    }
    lines::keep();
    start(plan, Sequel::GoOn)?;
    // ORDERING: acquires the end; pairs with the release in `finish`.
    while !IS_OVER.load(Ordering::Acquire) {
        task::doze(Deadline::after_ns(LOOK_NS));
    }
    Ok(())
}

/// Starts a thread on each CPU.
fn start(plan: Plan, sequel: Sequel) -> Result<(), Errno> {
    let cpus = boot::info().cpus;
    MEASURED.attach(cpus);
    BENCH.call_once(|| Bench::new(&Machine, plan, &TALLIES, &MEASURED));
    let work = match sequel {
        Sequel::End => work_to_the_end,
        Sequel::GoOn => work_for_a_program,
    };
    for cpu in 0..cpus {
        task::start_kernel_thread("calls", work, cpu)?;
    }
    Ok(())
}

fn work_to_the_end(cpu: usize) -> ! {
    work(cpu, Sequel::End)
}

fn work_for_a_program(cpu: usize) -> ! {
    work(cpu, Sequel::GoOn)
}

/// The thread of a CPU.
fn work(cpu: usize, sequel: Sequel) -> ! {
    move_to(CpuId::new(cpu as u32));
    let bench = BENCH.get().expect("made before the threads");
    match cpu {
        0 => lead(bench, sequel),
        _ => bench.work(),
    }
    loop {
        task::doze(Deadline::after_ns(NS_PER_S));
    }
}

/// What CPU 0 does: the run, and its verdict.
fn lead(bench: &Bench<Machine, MAX_CPUS>, sequel: Sequel) {
    let verdict = bench.lead();
    let (rows, wrong) = (verdict.rows, verdict.wrong);
    lines::add(format_args!("calls: done rows={rows} wrong={wrong}"));
    if sequel == Sequel::End {
        task::end_machine_with(u8::from(wrong > 0));
    }
    // ORDERING: publishes the end; pairs with the acquire in `run`.
    IS_OVER.store(true, Ordering::Release);
}

/// Returns on that CPU, and stays there.
fn move_to(cpu: CpuId) {
    let me = task::current().to_arc();
    task::set_affinity(&me, &CpuMask::only(cpu));
    while percpu::cpu_id() != cpu {
        task::yield_now();
    }
}

/// Body of the interrupt that the contenders send; interrupts off.
pub fn interrupt() {
    if let Some(bench) = BENCH.get() {
        bench.handle_ipi();
    }
}
