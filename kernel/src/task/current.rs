//! The thread that runs here.

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::signal::SignalSet;
use super::thread::{Context, work};
use super::{Process, Thread, sched};
use crate::arch::{fsbase, percpu};
use crate::errno::Errno;
use crate::mm::{MemorySpace, SpaceUse};
use crate::preempt;
use crate::sync::Sleeper;

/// Proof of being on a thread: derefs to it.
///
/// Not `Send`: it may not outlive the running of the thread, which it cannot leave.
#[derive(Debug, Clone, Copy)]
pub struct Current {
    thread: NonNull<Thread>,
    not_send: PhantomData<*mut ()>,
}

/// The running thread, idle threads included.
///
/// # Panics
/// Before the scheduler has started on this CPU.
pub fn current() -> Current {
    try_current().expect("no thread runs on this CPU yet")
}

/// The running thread, or `None` while this CPU is still starting.
pub fn try_current() -> Option<Current> {
    let thread = NonNull::new(percpu::current_thread().cast::<Thread>())?;
    Some(Current {
        thread,
        not_send: PhantomData,
    })
}

/// The address space of the running thread; `None` on idle threads and while starting.
pub fn current_space() -> Option<Arc<MemorySpace>> {
    try_current()?.with_context(|context| context.space.as_ref().map(|used| used.space().clone()))
}

/// Runs `work`, which leaves the thread in its address space, with that; `None` where there is none. Nothing is counted: threads of a process would write to the
/// same line for each page fault.
pub fn with_current_space<T>(work: impl FnOnce(&MemorySpace) -> T) -> Option<T> {
    let space = try_current()?
        .with_context(|context| context.space.as_ref().map(|used| Arc::as_ptr(used.space())))?;
    // SAFETY: the thread's context has a reference, which only the thread itself gives up, and it does `work` meanwhile.
    Some(work(unsafe { &*space }))
}

/// The running thread, for locks that it waits for.
pub fn current_sleeper() -> Arc<dyn Sleeper> {
    current().to_arc()
}

/// Runs `work` with the address space of another process; it may sleep, and touch user memory.
///
/// # Errors
/// ESRCH when that process has none any more, EBUSY for a thread that has a window.
pub fn in_space_of<T>(
    me: &Current,
    process: &Process,
    work: impl FnOnce() -> T,
) -> Result<T, Errno> {
    let there = process.space().ok_or(Errno::ESRCH)?;
    let own = me.with_context(|context| {
        let space = context.space.as_ref().map(|used| used.space().clone());
        space.filter(|_| context.window.is_none())
    });
    // One more use: it must not be let go of meanwhile.
    let own = SpaceUse::new(own.ok_or(Errno::EBUSY)?);
    sched::change_space(Some(SpaceUse::new(there)), None);
    let result = work();
    sched::change_space(Some(own), None);
    Ok(result)
}

impl Current {
    /// A counted reference to the thread.
    pub fn to_arc(self) -> Arc<Thread> {
        let raw = self.thread.as_ptr().cast_const();
        // SAFETY: the pointer came from `Arc::as_ptr` (`sched` sets it) and the scheduler holds a
        // reference while the thread runs.
        unsafe { Arc::increment_strong_count(raw) };
        // SAFETY: as above; the count was just raised for this value.
        unsafe { Arc::from_raw(raw) }
    }

    /// Must a sleep in the kernel end early: is the thread ending, or a signal to be delivered?
    pub fn is_interrupted(&self) -> bool {
        match self.work() & (work::EXIT | work::SIGNAL) {
            0 => false,
            bits => bits & work::EXIT != 0 || self.signals.lock().has_deliverable(),
        }
    }

    /// Is the thread to end as soon as it leaves the kernel?
    pub fn is_ending(&self) -> bool {
        self.work() & work::EXIT != 0
    }

    /// Remembers that a signal interrupted this system call, which could be made again.
    pub fn interrupted_call(&self, number: u64) {
        self.with_context(|context| context.restart = Some(number));
        self.add_work(work::SIGNAL);
    }

    /// The signals that it has blocked.
    pub fn blocked_signals(&self) -> SignalSet {
        self.signals.lock().blocked()
    }

    /// The signals that wait for it.
    pub fn pending_signals(&self) -> SignalSet {
        let shared = self.process().shared_signals.lock().pending();
        self.signals.lock().pending().union(shared)
    }

    /// The user's FS base.
    pub fn fs_base(&self) -> u64 {
        self.with_context(|context| context.fs_base)
    }

    /// Sets the user's FS base, which is below `USER_END`, here and for every switch to the thread.
    pub fn set_fs_base(&self, base: u64) {
        self.with_context(|context| context.fs_base = base);
        fsbase::write(base);
    }

    /// Works on what only the thread itself may touch. `f` must not switch threads; preemption is off meanwhile.
    pub(super) fn with_context<R>(&self, f: impl FnOnce(&mut Context) -> R) -> R {
        preempt::disable();
        // SAFETY: duty (1) of `context_ptr`: this is the thread itself. (4): `f` must not switch,
        // nobody else switches the thread away, and interrupt handlers do not call this; a nested call from `f` is
        // excluded because callers pass short closures that only move fields.
        let result = f(unsafe { &mut *self.context_ptr() });
        preempt::enable();
        result
    }
}

impl Deref for Current {
    type Target = Thread;

    fn deref(&self) -> &Thread {
        // SAFETY: the scheduler holds a reference while the thread runs, and this value does not
        // outlive the running of the thread.
        unsafe { self.thread.as_ref() }
    }
}
