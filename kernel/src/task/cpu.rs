//! Scheduler state of one CPU.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shootdown::CpuId;

use super::queue::{Ready, ReadyQueue};
use super::scheduling::{Priority, PriorityHint};
use super::timer::TimerQueue;
use super::usage::Usage;
use super::wake_budget::WakeBudget;
use super::{MAX_THREADS, Thread};
use crate::arch::percpu;
use crate::cpus::MAX_CPUS;
use crate::irq;
use crate::mm::MemorySpace;
use crate::sync::IrqMutex;

/// What becomes of a thread that is being switched away from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    /// It wants to go on running, and has not had its turn: queue it first.
    Ready,
    /// It has had its turn, or gives it up: queue it last.
    Yielded,
    /// It sleeps: whoever wakes it queues it.
    Parked,
    /// It never runs again.
    Dead,
}

/// Where a thread is as its time is accounted. A switch says nothing about what was before: that counts as user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the program.
    User,
    /// In the kernel.
    Kernel,
}

/// What only the CPU itself touches, interrupts off.
#[derive(Debug)]
pub(super) struct Local {
    /// Runs when nothing else does.
    pub idle: Arc<Thread>,
    /// Keeps the running thread alive.
    pub current: Arc<Thread>,
    /// The thread switched away from, until its successor has finished the switch.
    pub leaving: Option<(Arc<Thread>, Leave)>,
    /// Keeps the loaded address space alive, also while an idle thread leaves it alone.
    pub space: Option<Arc<MemorySpace>>,
    /// When the running thread has had its turn, on the monotonic clock.
    pub slice_end_ns: u64,
    /// Up to when the running thread's time is accounted.
    pub accounted_ns: u64,
}

/// Everything the scheduler keeps about a CPU.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct CpuSched {
    /// Threads that are ready to run here.
    pub ready: IrqMutex<ReadyQueue<Arc<Thread>>>,
    /// Threads that fell asleep here with a deadline.
    pub timers: IrqMutex<TimerQueue>,
    /// Has the CPU entered the scheduler?
    started: AtomicBool,
    /// Are threads placed here? False before the start, and from the moment on when the CPU is to go offline.
    open: AtomicBool,
    /// Ready threads plus the running one, as a hint for placement.
    load: AtomicU32,
    /// The most urgent thread that runs or waits here, as a hint for placement; nobody when it is the idle one.
    busy_with: PriorityHint,
    /// The most urgent thread that waits here, as a hint for other CPUs.
    waiting: PriorityHint,
    /// Of the threads that wake up here.
    pub wake_budget: WakeBudget,
    local: UnsafeCell<Option<Local>>,
}

// SAFETY: `local` is the only part that is not `Sync`; `with_local` states who may touch it.
unsafe impl Sync for CpuSched {}

/// Threads that a ready queue has room for. Those on their way out have no number any more, so there may be more
/// than [`MAX_THREADS`].
const QUEUE_ROOM: usize = 2 * MAX_THREADS;

/// One for each CPU that may ever come up.
static CPUS: [CpuSched; MAX_CPUS] = [const { CpuSched::new() }; MAX_CPUS];

/// The scheduler state of that CPU.
pub(super) fn of(cpu: CpuId) -> &'static CpuSched {
    &CPUS[cpu.index()]
}

/// The scheduler state of this CPU. Interrupts must be off for the answer to stay true.
pub(super) fn this() -> &'static CpuSched {
    of(percpu::cpu_id())
}

/// Every CPU that has entered the scheduler, those that are offline again included.
pub(super) fn started() -> impl Iterator<Item = CpuId> {
    (0..MAX_CPUS as u32)
        .map(CpuId::new)
        .filter(|&cpu| of(cpu).is_started())
}

/// Every CPU that takes threads.
pub(super) fn open() -> impl Iterator<Item = CpuId> {
    started().filter(|&cpu| of(cpu).is_open())
}

/// Those CPUs as the bits of a word.
pub(super) fn open_bits() -> u64 {
    open().fold(0, |bits, cpu| bits | 1 << cpu.index())
}

impl CpuSched {
    const fn new() -> Self {
        Self {
            ready: IrqMutex::new(ReadyQueue::new()),
            timers: IrqMutex::new(TimerQueue::new()),
            started: AtomicBool::new(false),
            open: AtomicBool::new(false),
            load: AtomicU32::new(0),
            busy_with: PriorityHint::nobody(),
            waiting: PriorityHint::nobody(),
            wake_budget: WakeBudget::full(),
            local: UnsafeCell::new(None),
        }
    }

    /// Enters this CPU into the scheduler, with what it runs now as its idle thread.
    pub fn start(&self, cpu: CpuId) {
        self.ready.lock().reserve(QUEUE_ROOM);
        self.timers.lock().reserve();
        let idle = Thread::idle(cpu);
        let state = irq::save();
        percpu::set_current_thread(Arc::as_ptr(&idle).cast_mut().cast());
        let local = Local {
            current: idle.clone(),
            idle,
            leaving: None,
            space: None,
            slice_end_ns: 0,
            accounted_ns: 0,
        };
        // SAFETY: as in `with_local`: own CPU, interrupts off, not nested.
        unsafe { *self.local.get() = Some(local) };
        irq::restore(state);
        self.open.store(true, Ordering::Relaxed);
        // ORDERING: publishes the queues' room; pairs with the acquire in `is_started`.
        self.started.store(true, Ordering::Release);
    }

    pub fn is_started(&self) -> bool {
        // ORDERING: pairs with the release in `start`.
        self.started.load(Ordering::Acquire)
    }

    /// Are threads placed here? The queue itself has the last word, see [`ReadyQueue::close`].
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Places no more threads here, and refuses those whose place was chosen before.
    pub fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
        self.ready.lock().close();
    }

    /// Undoes [`close`](Self::close).
    pub fn reopen(&self) {
        self.ready.lock().reopen();
        self.open.store(true, Ordering::Relaxed);
    }

    /// Works on the private part of this CPU. Interrupts are off, `self` is `this()`, and `f`
    /// neither switches threads nor calls this again.
    pub fn with_local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        debug_assert!(!irq::enabled());
        debug_assert!(core::ptr::eq(self, this()));
        // SAFETY: only the CPU itself comes here (asserted), interrupts are off so no handler
        // nests, and `f` does not re-enter (caller).
        let local = unsafe { &mut *self.local.get() };
        f(local
            .as_mut()
            .expect("the scheduler has not started on this CPU"))
    }

    /// Gives the running thread its time since the last call, all of it to the mode that it is in. On the CPU itself.
    pub fn account(&self, local: &mut Local, now_ns: u64, mode: Mode) {
        let ran_ns = now_ns.saturating_sub(local.accounted_ns);
        local.current.use_more(Usage {
            run_ns: ran_ns,
            system_ns: if mode == Mode::Kernel { ran_ns } else { 0 },
            faults: 0,
        });
        local.accounted_ns = now_ns;
        if !local.current.priority().is_real_time() {
            let is_awaited = self.waiting().is_some();
            self.wake_budget
                .account(local.current.turn(), is_awaited, ran_ns);
        }
    }

    /// Ready threads plus the running one; a hint.
    pub fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    /// Updates the hints for others after a change of the queue, which is locked.
    pub fn publish(&self, ready: &ReadyQueue<Arc<Thread>>) {
        let (waiting, running) = (ready.most_urgent(), ready.running());
        let threads = ready.count() + usize::from(running.is_some());
        self.load.store(threads as u32, Ordering::Relaxed);
        self.waiting.set(waiting);
        self.busy_with.set(waiting.max(running));
    }

    /// The most urgent thread that runs or waits; a hint.
    pub fn busy_with(&self) -> Option<Priority> {
        self.busy_with.get()
    }

    /// The most urgent thread that waits; a hint.
    pub fn waiting(&self) -> Option<Priority> {
        self.waiting.get()
    }
}
