//! The end of threads and processes.
//!
//! A process ends by deciding its status once, marking every thread and interrupting those that
//! run; each thread then leaves by its own way to user mode. Before a thread gives up its use of the
//! address space, its CPU has loaded the kernel root; the last thread gives the memory back, and what idle CPUs
//! keep of the space is next to nothing.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::current::current;
use super::futex::{self, FutexKey, FutexScope};
use super::process::ExitStatus;
use super::signal::Signal;
use super::thread::work;
use super::{Pid, Process, id, robust, sched};
use crate::arch::{self, uaccess};
use crate::irq;
use crate::zerocopy;

/// Exit codes of the machine that stand for an exit status of the first process: 0 to this.
const LARGEST_STATUS: u8 = 0x3d;

/// The first process was killed, or its status is larger than [`LARGEST_STATUS`].
const OTHER_STATUS: u8 = 0x3e;

/// Ends the current thread alone, and with it the process if it is the last one.
pub fn exit_thread(status: ExitStatus) -> ! {
    irq::enable();
    // Who joins this thread finds nothing left of it.
    zerocopy::leave(&current());
    robust::let_go(&current());
    clear_child_tid();
    finish_thread(status);
    sched::leave_forever();
}

/// Ends the whole process, the current thread included.
pub fn exit_process(status: ExitStatus) -> ! {
    let process = current().process().clone();
    end_process(&process, status);
    drop(process);
    exit_thread(status)
}

/// Decides the end of a process and sets its threads on their way, wherever they are.
/// The threads are gone some time later. The first decision stands.
pub fn end_process(process: &Process, status: ExitStatus) {
    for thread in process.begin_exit(status).unwrap_or_default() {
        thread.add_work(work::EXIT);
        sched::unpark(&thread);
        sched::nudge(&thread);
    }
}

/// Tells whoever joins the thread: zero at the address, and one futex wake-up. User memory may
/// be anything by now, so failures are ignored as on Linux.
fn clear_child_tid() {
    let address = current().clear_child_tid.swap(0, Ordering::Relaxed);
    if address == 0 || uaccess::write_user::<u32>(address, 0).is_err() {
        return;
    }
    if let Ok(key) = FutexKey::current(address, FutexScope::Shared) {
        let _woken = futex::wake(key, 1, futex::BITSET_ANY);
    }
}

/// Gives up everything the thread holds. A function of its own, so that nothing which needs
/// dropping is left on the stack that is never returned to.
fn finish_thread(status: ExitStatus) {
    let me = current();
    let process: Arc<Process> = me.process().clone();
    sched::leave_space();
    id::release(me.tid());
    if let Some(how) = process.remove_thread(me.tid(), status) {
        process.finish(how);
        if process.pid() == Pid::INIT {
            end_machine(how);
        }
    }
}

/// The first process has ended: so does the machine.
fn end_machine(how: ExitStatus) -> ! {
    match how {
        ExitStatus::Exited(code) => {
            log::info!("shootdown: init exited with status {code}");
            arch::exit::qemu_exit(if code <= LARGEST_STATUS {
                code
            } else {
                OTHER_STATUS
            })
        }
        ExitStatus::Killed(signal) => {
            log::info!("shootdown: init killed by {signal}");
            arch::exit::qemu_exit(OTHER_STATUS)
        }
    }
}

/// Ends the machine as if the first process had exited with `code`.
pub fn end_machine_with(code: u8) -> ! {
    end_machine(ExitStatus::Exited(code))
}

/// Ends the current process by a signal.
pub fn kill_current(signal: Signal) -> ! {
    exit_process(ExitStatus::Killed(signal))
}
