//! Command line, threads and verdict.

use shootdown::{CpuId, CpuMask};
use shootdown_callbench::{Bench, Plan};
use spin::Once;

use super::machine::{MEASURED, Machine, TALLIES, attach};
use crate::arch::percpu;
use crate::boot::BootInfo;
use crate::boot::fail::boot_fail;
use crate::console::print;
use crate::cpus::MAX_CPUS;
use crate::task::{self, Deadline};

const NS_PER_S: u64 = 1_000_000_000;

static BENCH: Once<Bench<Machine, MAX_CPUS>> = Once::new();

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
    attach(boot.cpus);
    BENCH.call_once(|| Bench::new(&Machine, plan, &TALLIES, &MEASURED));
    for cpu in 0..boot.cpus {
        if let Err(errno) = task::start_kernel_thread("calls", work, cpu) {
            boot_fail!("no thread for the calls: {errno:?}; use more memory (-m)");
        }
    }
    true
}

/// The thread of a CPU.
fn work(cpu: usize) -> ! {
    move_to(CpuId::new(cpu as u32));
    let bench = BENCH.get().expect("made before the threads");
    if cpu == 0 {
        let verdict = bench.lead();
        let (rows, wrong) = (verdict.rows, verdict.wrong);
        print(format_args!("calls: done rows={rows} wrong={wrong}\n"));
        task::end_machine_with(u8::from(wrong > 0));
    }
    bench.work();
    loop {
        task::doze(Deadline::after_ns(NS_PER_S));
    }
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
