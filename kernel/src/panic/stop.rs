//! Stopping other CPUs for good, by NMI: each loads the kernel's root, says so, and halts.
//!
//! The engine takes no part: whoever stops others may have panicked in the middle of it. The states of a CPU: `ABSENT -> RUNS` when it starts, `-> ASKED` by whoever stops it,
//! `-> STOPPED` by itself, from any of them. A reset brings it back to `RUNS`.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

use shootdown::{CpuId, CpuMask};
use shootdown_x86::irq;

use crate::arch::{apic, paging, percpu, svm, tlb};
use crate::cpus::{Cpus, MAX_CPUS};
use crate::time;

const ABSENT: u8 = 0;
const RUNS: u8 = 1;
const ASKED: u8 = 2;
const STOPPED: u8 = 3;

static STATES: [AtomicU8; MAX_CPUS] = [const { AtomicU8::new(ABSENT) }; MAX_CPUS];

/// An emulator on a busy host may not run a virtual CPU for seconds. One that has not answered by then does not hear NMIs.
const LIMIT_NS: u64 = 10_000_000_000;
/// An NMI that the controller refuses, or an emulator loses, is sent again; one too many changes nothing.
const AGAIN_NS: u64 = 100_000_000;

/// What became of the CPUs that were asked to stop. Displays as a line for each of the two that is not empty.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// They execute nothing any more, and have the kernel's root loaded.
    pub halted: CpuMask<Cpus>,
    /// They have not said so in time.
    pub missing: CpuMask<Cpus>,
}

/// The CPU `cpu` is this one, and takes NMIs from here on. Interrupts off.
pub fn cpu_starts(cpu: usize) {
    STATES[cpu].store(RUNS, Ordering::Relaxed);
}

/// Stops all CPUs but this one. Any context; spins, but not longer than [`LIMIT_NS`].
pub fn stop_others() -> Stopped {
    let me = percpu::cpu_id();
    stop(|cpu| cpu != me)
}

/// Stops those that `is_meant`, this CPU not among them. As [`stop_others`].
pub fn stop(is_meant: impl Fn(CpuId) -> bool) -> Stopped {
    let all = (0..MAX_CPUS as u32).map(CpuId::new);
    let mut missing: CpuMask<Cpus> = all.filter(|&cpu| is_meant(cpu) && ask(cpu)).collect();
    let mut halted = CpuMask::EMPTY;
    let end_ns = time::now_ns() + LIMIT_NS;
    let mut next_ns = 0;
    while !missing.is_empty() && time::now_ns() <= end_ns {
        if time::now_ns() >= next_ns {
            // One for each: a shorthand would also reach CPUs that this kernel does not use. What is refused is sent again.
            missing.iter().for_each(|cpu| _ = apic::send_nmi(cpu));
            next_ns = time::now_ns() + AGAIN_NS;
        }
        // ORDERING: Acquire: all that it did is over; pairs with the release in `stop_here`.
        let has_stopped = |&cpu: &CpuId| STATES[cpu.index()].load(Ordering::Acquire) == STOPPED;
        let new: CpuMask<Cpus> = missing.iter().filter(has_stopped).collect();
        for cpu in new.iter() {
            missing.remove(cpu);
            halted.insert(cpu);
        }
        core::hint::spin_loop();
    }
    Stopped { halted, missing }
}

/// False where there is no such CPU. One that has stopped by itself stays so.
fn ask(cpu: CpuId) -> bool {
    let state = &STATES[cpu.index()];
    // The NMI comes behind it.
    let _ = state.compare_exchange(RUNS, ASKED, Ordering::Relaxed, Ordering::Relaxed);
    state.load(Ordering::Relaxed) != ABSENT
}

/// Whether somebody wants this CPU to stop, or it has stopped, and something has woken it. NMI-like contexts.
pub fn is_asked() -> bool {
    STATES[percpu::cpu_id().index()].load(Ordering::Relaxed) >= ASKED
}

/// Stops this CPU until it is reset. Any context, NMI handlers too.
pub fn stop_here() -> ! {
    let _ = irq::save();
    svm::leave();
    // It keeps its root as long as it is halted, and every other may be freed.
    // SAFETY: 1. the kernel's. 2. a frame.
    unsafe { tlb::local().load_root(paging::kernel_root().as_u64()) };
    // ORDERING: Release: all that this CPU did is over, and its root is the kernel's; pairs with the acquire in `stop`.
    STATES[percpu::cpu_id().index()].store(STOPPED, Ordering::Release);
    loop {
        // An NMI, SMI or machine check wakes it.
        x86_64::instructions::hlt();
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = LIMIT_NS / 1_000_000_000;
        list(out, format_args!("stopped:"), &self.halted)?;
        list(
            out,
            format_args!("not stopped in {seconds} s:"),
            &self.missing,
        )
    }
}

fn list(
    out: &mut fmt::Formatter<'_>,
    what: fmt::Arguments<'_>,
    cpus: &CpuMask<Cpus>,
) -> fmt::Result {
    if cpus.is_empty() {
        return Ok(());
    }
    write!(out, "{what}")?;
    cpus.iter().try_for_each(|cpu| write!(out, " {cpu}"))?;
    writeln!(out)
}
