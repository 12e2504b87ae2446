//! A platform that does nothing, on which one thread plays two CPUs, and a child process that is single-stepped through an operation: every instruction
//! of both CPUs is counted.

use std::arch::asm;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shootdown::*;

/// Two CPUs on one thread.
pub struct Puppet<
    C = Cpus<64>,
    const PLAIN: bool = false,
    const QUIET: bool = false,
    const WINDOWS: bool = false,
> {
    /// The CPU that the thread plays.
    pub current: AtomicU32,
    interrupted: AtomicBool,
    handle_ipi: fn(),
    cpus: PhantomData<C>,
}

impl<C, const PLAIN: bool, const QUIET: bool, const WINDOWS: bool>
    Puppet<C, PLAIN, QUIET, WINDOWS>
{
    /// A machine whose interrupts this takes.
    pub const fn new(handle_ipi: fn()) -> Self {
        Self {
            current: AtomicU32::new(0),
            interrupted: AtomicBool::new(false),
            handle_ipi,
            cpus: PhantomData,
        }
    }
}

// SAFETY: one thread plays both CPUs and changes between them only while CPU 0 relaxes; there are no translations; what one writes
// the other sees; CPU 0 takes no interrupts.
unsafe impl<C: Capacity, const PLAIN: bool, const QUIET: bool, const WINDOWS: bool> Platform
    for Puppet<C, PLAIN, QUIET, WINDOWS>
{
    type Cpus = C;
    const CONFIG: Config = if PLAIN { Config::PLAIN } else { Config::FULL }.with_quiet(QUIET);
    const HAS_WINDOWS: bool = WINDOWS;
    type IrqState = ();

    fn current_cpu(&self) -> CpuId {
        CpuId::new(self.current.load(Ordering::Relaxed))
    }

    fn irq_save(&self) {}

    unsafe fn irq_restore(&self, (): ()) {}

    fn preempt_disable(&self) {}

    unsafe fn preempt_enable(&self) {}

    fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> {
        self.interrupted.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn local_flush(&self, _: LocalFlush) {}

    unsafe fn load_root(&self, _: u64) {}

    unsafe fn copy_shared_top(&self, _: u64, _: u64, _: FlushRange) {}

    unsafe fn clear_top(&self, _: u64, _: FlushRange) {}

    fn region_of(&self, address: usize) -> usize {
        address >> 39
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn relax(&self) {
        if self.interrupted.swap(false, Ordering::Relaxed) {
            self.current.store(1, Ordering::Relaxed);
            (self.handle_ipi)();
            self.current.store(0, Ordering::Relaxed);
        }
    }
}

/// Runs `operation` twice to warm up, then steps through it in a child, which `each` sees after each instruction. Returns the child's
/// stack pointer at the start.
pub fn step_through<R>(
    operation: impl Fn() -> R,
    mut each: impl FnMut(&libc::user_regs_struct),
) -> u64 {
    let operation = || _ = operation();
    operation();
    operation();
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        in_child(&operation);
    }
    let mut status = 0;
    // SAFETY: `status` is ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    resume(child, libc::PTRACE_CONT, &mut status);
    let first = registers(child).rsp;
    loop {
        resume(child, libc::PTRACE_SINGLESTEP, &mut status);
        let seen = registers(child);
        if libc::WIFEXITED(status) || is_breakpoint(child, seen.rip) {
            break;
        }
        each(&seen);
    }
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    first
}

fn in_child(operation: &dyn Fn()) -> ! {
    // SAFETY: the parent waits for it.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    // SAFETY: it stops this process until the parent goes on.
    unsafe { libc::raise(libc::SIGSTOP) };
    // SAFETY: a trap, which the parent takes.
    unsafe { asm!("int3") };
    operation();
    // SAFETY: as above.
    unsafe { asm!("int3") };
    std::process::abort();
}

fn resume(child: libc::pid_t, how: libc::c_uint, status: &mut libc::c_int) {
    // SAFETY: our own child, which is stopped.
    unsafe { libc::ptrace(how, child, 0, 0) };
    // SAFETY: `status` is ours.
    unsafe { libc::waitpid(child, status, 0) };
}

fn registers(child: libc::pid_t) -> libc::user_regs_struct {
    // SAFETY: numbers only.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: our own child, which is stopped; the kernel fills our structure.
    unsafe { libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers) };
    registers
}

fn is_breakpoint(child: libc::pid_t, address: u64) -> bool {
    const INT3: libc::c_long = 0xcc;
    // SAFETY: our own child, which is stopped.
    let bytes = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, child, address, 0) };
    bytes & 0xff == INT3
}
