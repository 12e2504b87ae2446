//! How threads begin: the first program, and every thread's first steps.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::affinity::Affinity;
use super::current::current;
use super::exec::Program;
use super::group::Belonging;
use super::id::ReservedTid;
use super::name::ThreadName;
use super::scheduling::Scheduling;
use super::signal::{Actions, ThreadSignals};
use super::stack::KernelStack;
use super::thread::NewThread;
use super::timer::Deadline;
use super::{Pid, Process, Thread, cpu, id, sched};
use crate::arch::fpu::FpuState;
use crate::arch::trap::TrapFrame;
use crate::arch::{self, context, percpu};
use crate::boot::BootInfo;
use crate::errno::Errno;
use crate::fs::{FdTable, Path};
use crate::irq;
use crate::isolation;
use crate::mm::{MemorySpace, SpaceUse};
use crate::platform::SHOOTDOWN;
use crate::{latency, quiet, random, time};

/// The first program unless the command line names one, as on Linux.
const DEFAULT_INIT: &str = "/init";

/// Environment of the first program, as Linux's.
const INIT_ENVIRONMENT: [&str; 2] = ["HOME=/", "TERM=linux"];

/// How long other CPUs may take from being online to scheduling.
const CPU_START_NS: u64 = 2_000_000_000;

/// Enters this CPU into the scheduler; it is the idle thread's from now on. Interrupts are off.
pub fn start_scheduling() {
    cpu::this().start(percpu::cpu_id());
}

/// Starts the first program, or ends the machine. Boot CPU, all CPUs schedule threads.
pub fn start_init(boot: &BootInfo) {
    match first_thread(boot) {
        Ok(thread) => sched::start(thread),
        Err(why) => {
            log::error!("{why}");
            arch::exit::qemu_exit(arch::exit::BOOT_ERROR);
        }
    }
}

/// Programs count CPUs as they start, so all of them are to be there. Bounded: a CPU that hangs is
/// reported and done without.
pub fn wait_for_other_cpus(expected: usize) {
    let deadline = Deadline::after_ns(CPU_START_NS);
    while sched::cpu_count() < expected {
        if deadline.has_passed() {
            log::warn!(
                "{} of {expected} CPUs schedule threads; the rest hang",
                sched::cpu_count()
            );
            return;
        }
        SHOOTDOWN.poll();
        core::hint::spin_loop();
    }
}

/// Loads the first program; the error is one line for the console.
fn first_thread(info: &BootInfo) -> Result<Arc<Thread>, String> {
    let path = info
        .option("init")
        .or(info.option("rdinit"))
        .unwrap_or(DEFAULT_INIT);
    let mut argv = Vec::from([Vec::from(path)]);
    if let Some((_, arguments)) = info.cmdline.split_once(" -- ") {
        argv.extend(arguments.split_ascii_whitespace().map(Vec::from));
    }
    let explain = |why: &dyn core::fmt::Display| alloc::format!("cannot run {path}: {why}");
    let program = Program::find(Path::absolute(path), argv).map_err(|why| match why {
        Errno::ENOENT => {
            alloc::format!("init program {path} is not in the initramfs: pass init=/bin/PROGRAM")
        }
        why => alloc::format!("cannot run {path}: {why:?}"),
    })?;
    let space = MemorySpace::new().map_err(|why| explain(&why))?;
    let entry = program
        .load(&space, &INIT_ENVIRONMENT)
        .map_err(|why| explain(&why))?;
    let reserved = ReservedTid::new().map_err(|_| explain(&"too many threads"))?;
    let stack = KernelStack::new().ok_or_else(|| explain(&"out of memory"))?;
    let exe = Arc::from(program.path);
    let files = FdTable::with_console().map_err(|_| explain(&"too many open files"))?;
    let process = Process::new(reserved.tid(), None, exe, files, Actions::new());
    process.set_space(&space);
    // As on Linux: it is in no session yet.
    process.set_belonging(Belonging::alone(Pid::new(0)));
    let thread = new_thread(NewThread {
        tid: reserved.tid(),
        process: process.clone(),
        stack,
        space: SpaceUse::new(space),
        entry: TrapFrame::user(entry.rip, entry.rsp),
        fpu: FpuState::initial(),
        fs_base: 0,
        affinity: Affinity::all(),
        scheduling: Scheduling::NORMAL,
        signals: ThreadSignals::new(),
        name: ThreadName::of_path(path).as_bytes(),
        own_tid: None,
    });
    process
        .add_thread(thread.clone())
        .map_err(|_| explain(&"it is ending already"))?;
    id::register_process(&process);
    id::register_thread(&thread);
    reserved.keep();
    Ok(thread)
}

/// Bytes for `AT_RANDOM`.
pub(super) fn random_seed() -> [u8; 16] {
    let mut seed = [0; 16];
    random::fill(&mut seed);
    seed
}

/// A thread whose first switch leads to user mode with `new.entry`.
pub(super) fn new_thread(new: NewThread) -> Arc<Thread> {
    // SAFETY: the stack is fresh, belongs to the new thread, and its top is a multiple of 64.
    let rsp = unsafe { context::new_stack(new.stack.top(), thread_main, 0) };
    Thread::new(new, rsp)
}

/// First function on a new thread's stack; interrupts are off, as after every switch.
extern "C" fn thread_main(_: usize) -> ! {
    sched::finish_first_switch();
    irq::enable();
    let me = current();
    let mut frame = me
        .with_context(|context| context.entry.take())
        .expect("a new thread");
    if let Some(pointer) = me.with_context(|context| context.own_tid.take()) {
        let _nowhere = pointer.write(me.tid().as_u32());
    }
    report_first_entry();
    irq::disable();
    sched::before_user_return(&mut frame);
    latency::irqs_on();
    isolation::enter_user();
    quiet::enter();
    context::enter_user(&frame)
}

/// One line as the first program enters user mode: boot ends here.
fn report_first_entry() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let us = time::now_ns() / 1_000;
        let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
        log::info!("shootdown: first user instruction at {seconds}.{fraction:06} s");
    }
}
