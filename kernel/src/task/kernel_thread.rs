//! Threads that stay in the kernel.

use alloc::sync::Arc;

use super::affinity::Affinity;
use super::id::ReservedTid;
use super::name::ThreadName;
use super::scheduling::Scheduling;
use super::signal::{Actions, ThreadSignals};
use super::stack::KernelStack;
use super::thread::NewThread;
use super::{Process, Thread, Tid, id, sched};
use crate::arch::context;
use crate::arch::fpu::FpuState;
use crate::arch::trap::TrapFrame;
use crate::errno::Errno;
use crate::fs::FdTable;
use crate::irq;
use crate::mm::{MemorySpace, SpaceUse};

/// Starts a thread that runs `work(argument)` in the kernel, in a process of its own and without an address space; it never ends. It
/// is preempted and moved as any other, and may sleep.
///
/// # Errors
/// ENOMEM without memory, EAGAIN when there are too many threads.
pub fn start_kernel_thread(
    name: &str,
    work: fn(usize) -> !,
    argument: usize,
) -> Result<Tid, Errno> {
    let reserved = ReservedTid::for_process()?;
    let stack = KernelStack::new().ok_or(Errno::ENOMEM)?;
    let files = FdTable::with_console().map_err(|_| Errno::ENFILE)?;
    let process = Process::new(reserved.tid(), None, Arc::from(name), files, Actions::new());
    // Freed by the thread itself, in its first steps.
    let order = alloc::boxed::Box::into_raw(alloc::boxed::Box::new(Order { work, argument }));
    // SAFETY: the stack is fresh, belongs to the new thread, and its top is a multiple of 64.
    let rsp =
        unsafe { context::new_stack(stack.top(), kernel_thread_main, order.expose_provenance()) };
    let new = NewThread {
        tid: reserved.tid(),
        process: process.clone(),
        stack,
        space: SpaceUse::new(MemorySpace::new().map_err(|_| Errno::ENOMEM)?),
        entry: TrapFrame::default(),
        fpu: FpuState::initial(),
        fs_base: 0,
        affinity: Affinity::all(),
        scheduling: Scheduling::NORMAL,
        signals: ThreadSignals::new(),
        name: ThreadName::of_path(name).as_bytes(),
        own_tid: None,
    };
    let thread = Thread::new(new, rsp);
    process.add_thread(thread.clone())?;
    id::register_process(&process);
    id::register_thread(&thread);
    let tid = reserved.keep();
    sched::start(thread);
    Ok(tid)
}

/// What a new thread is to do.
struct Order {
    work: fn(usize) -> !,
    argument: usize,
}

/// First function on the thread's stack; interrupts are off.
extern "C" fn kernel_thread_main(order: usize) -> ! {
    sched::finish_first_switch();
    irq::enable();
    let order = core::ptr::with_exposed_provenance_mut::<Order>(order);
    // SAFETY: made by `start_kernel_thread` for this thread alone.
    let order = unsafe { alloc::boxed::Box::from_raw(order) };
    let Order { work, argument } = *order;
    sched::leave_space();
    work(argument)
}
