//! A thread: what the scheduler, signals, futexes and system calls keep about it.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use shootdown::CpuId;

use super::affinity::Affinity;
use super::futex::FutexState;
use super::name::{NAME_BYTES, ThreadName};
use super::queue::Ready;
use super::scheduling::{Priority, Scheduling};
use super::signal::ThreadSignals;
use super::stack::KernelStack;
pub(super) use super::state::{park_state, work};
use super::usage::{Meter, Usage};
use super::wake_budget::Turn;
use super::{Process, Tid, sched};
use crate::arch::fpu::FpuState;
use crate::arch::trap::TrapFrame;
use crate::mm::{SpaceUse, Window};
use crate::sync::{Link, List, Listed, Mutex, Sleeper};
use crate::user_memory::UserPtr;
use crate::zerocopy;

/// What only the thread itself may touch, or the scheduler of the CPU that switches it.
#[derive(Debug)]
pub(super) struct Context {
    /// Stack pointer while switched away.
    pub rsp: usize,
    /// FPU and SSE registers while switched away.
    pub fpu: FpuState,
    /// User FS base, loaded at every switch to the thread.
    pub fs_base: u64,
    /// The address space it runs in; `None` for idle threads and at the very end.
    pub space: Option<SpaceUse>,
    /// The window that it has there, on one CPU.
    pub window: Option<Arc<Window>>,
    /// Where a new thread enters user mode.
    pub entry: Option<TrapFrame>,
    /// Where the new thread puts its number before it enters user mode.
    pub own_tid: Option<UserPtr<u32>>,
    /// Number of the system call that a signal interrupted and that could be made again.
    pub restart: Option<u64>,
}

/// One thread of a user process, or the idle thread of a CPU.
pub struct Thread {
    tid: Tid,
    process: Option<Arc<Process>>,
    stack: Option<KernelStack>,
    context: UnsafeCell<Context>,
    pub(super) park: AtomicU8,
    on_cpu: AtomicBool,
    cpu: AtomicU32,
    pub(super) affinity: Affinity,
    /// A [`Scheduling`].
    scheduling: AtomicU32,
    /// A [`Turn`].
    turn: AtomicU8,
    /// What is left of its slice, where it had to give way; 0 if it has had its turn.
    slice_left_ns: AtomicU64,
    work: AtomicU32,
    pub(super) futex: FutexState,
    pub(super) signals: Mutex<ThreadSignals>,
    /// Address that is zeroed and woken when the thread ends; 0 for none.
    pub(super) clear_child_tid: AtomicUsize,
    name: Mutex<[u8; NAME_BYTES]>,
    usage: Meter,
    /// Where its list of robust futexes is; 0 for nowhere.
    pub(super) robust_list: AtomicUsize,
    /// One more than the region where its mappings go; 0 for none.
    home: AtomicUsize,
    /// What it serves, and which server it waits for.
    pub(crate) server_link: Mutex<zerocopy::Link>,
    /// Link of the [`ThreadList`] that the thread is in.
    next_waiter: Link<Self>,
    /// Link among those that wait for a lock.
    next_sleeper: Link<dyn Sleeper>,
}

// SAFETY: `context` is the only part that is not `Sync` by itself; `context_ptr` states who may
// touch it and when.
unsafe impl Sync for Thread {}
// SAFETY: nothing in a thread is bound to the CPU that made it.
unsafe impl Send for Thread {}

/// What a new user thread starts with.
pub(super) struct NewThread {
    pub tid: Tid,
    pub process: Arc<Process>,
    pub stack: KernelStack,
    pub space: SpaceUse,
    pub entry: TrapFrame,
    pub fpu: FpuState,
    pub fs_base: u64,
    pub affinity: Affinity,
    pub scheduling: Scheduling,
    pub signals: ThreadSignals,
    pub name: [u8; NAME_BYTES],
    pub own_tid: Option<UserPtr<u32>>,
}

impl Thread {
    /// A user thread that is not queued yet.
    pub(super) fn new(new: NewThread, rsp: usize) -> Arc<Self> {
        let context = Context {
            rsp,
            fpu: new.fpu,
            fs_base: new.fs_base,
            space: Some(new.space),
            window: None,
            entry: Some(new.entry),
            own_tid: new.own_tid,
            restart: None,
        };
        let mut thread = Self::bare(new.tid, context);
        thread.process = Some(new.process);
        thread.stack = Some(new.stack);
        thread.affinity = new.affinity;
        thread.set_scheduling(new.scheduling);
        thread.signals = Mutex::new(new.signals);
        thread.name = Mutex::new(new.name);
        Arc::new(thread)
    }

    /// The idle thread of a CPU: what the CPU is running right now, on its boot stack.
    pub(super) fn idle(cpu: CpuId) -> Arc<Self> {
        let context = Context {
            rsp: 0,
            fpu: FpuState::initial(),
            fs_base: 0,
            space: None,
            window: None,
            entry: None,
            own_tid: None,
            restart: None,
        };
        let thread = Self::bare(Tid::IDLE, context);
        thread.set_cpu(cpu);
        thread.set_on_cpu(true);
        Arc::new(thread)
    }

    fn bare(tid: Tid, context: Context) -> Self {
        Self {
            tid,
            process: None,
            stack: None,
            context: UnsafeCell::new(context),
            park: AtomicU8::new(park_state::RUNNABLE),
            on_cpu: AtomicBool::new(false),
            cpu: AtomicU32::new(0),
            affinity: Affinity::all(),
            scheduling: AtomicU32::new(Scheduling::NORMAL.to_bits()),
            turn: AtomicU8::new(Turn::Regular as u8),
            slice_left_ns: AtomicU64::new(0),
            work: AtomicU32::new(0),
            futex: FutexState::new(),
            signals: Mutex::new(ThreadSignals::new()),
            clear_child_tid: AtomicUsize::new(0),
            name: Mutex::new([0; NAME_BYTES]),
            usage: Meter::default(),
            robust_list: AtomicUsize::new(0),
            home: AtomicUsize::new(0),
            server_link: Mutex::new(zerocopy::Link::new()),
            next_waiter: Mutex::new(None),
            next_sleeper: Mutex::new(None),
        }
    }

    /// Its number.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Is it the idle thread of a CPU?
    pub fn is_idle(&self) -> bool {
        self.process.is_none()
    }

    /// The process it belongs to.
    ///
    /// # Panics
    /// For an idle thread.
    pub fn process(&self) -> &Arc<Process> {
        self.process
            .as_ref()
            .expect("an idle thread has no process")
    }

    /// What it is scheduled by.
    pub fn scheduling(&self) -> Scheduling {
        Scheduling::from_bits(self.scheduling.load(Ordering::Relaxed))
    }

    /// Changes that; it takes effect when the scheduler looks next, see `sched::set_scheduling`.
    pub(super) fn set_scheduling(&self, scheduling: Scheduling) {
        self.scheduling
            .store(scheduling.to_bits(), Ordering::Relaxed);
    }

    /// How it comes by its turn. Waking up means nothing for a real-time thread.
    pub(super) fn turn(&self) -> Turn {
        match self.scheduling().priority() {
            Priority::NORMAL => Turn::from_u8(self.turn.load(Ordering::Relaxed)),
            _ => Turn::Regular,
        }
    }

    /// Changes that. For the CPU that it runs on, or for who takes it from asleep into a queue.
    pub(super) fn set_turn(&self, turn: Turn) {
        self.turn.store(turn as u8, Ordering::Relaxed);
    }

    /// What is left of its slice, for the next time that it runs. For the CPU that switches from or to it.
    pub(super) fn slice_left_ns(&self) -> &AtomicU64 {
        &self.slice_left_ns
    }

    /// Its name as set by `PR_SET_NAME`, without the terminator.
    pub fn name(&self) -> ThreadName {
        ThreadName::from_bytes(*self.name.lock())
    }

    /// Renames it; the last byte is forced to zero.
    pub fn set_name(&self, mut name: [u8; NAME_BYTES]) {
        name[NAME_BYTES - 1] = 0;
        *self.name.lock() = name;
    }

    /// Where to put a zero, and a futex wake-up, as the thread ends; 0 for nowhere.
    pub fn set_clear_child_tid(&self, address: usize) {
        self.clear_child_tid.store(address, Ordering::Relaxed);
    }

    /// The region of its space where its mappings go, if it has one.
    pub fn home(&self) -> Option<usize> {
        self.home.load(Ordering::Relaxed).checked_sub(1)
    }

    /// From now on they go there.
    pub fn set_home(&self, region: usize) {
        self.home.store(region + 1, Ordering::Relaxed);
    }

    /// It has none: its space is another one.
    pub fn lose_home(&self) {
        self.home.store(0, Ordering::Relaxed);
    }

    /// Where its list of robust futexes is; 0 for nowhere.
    pub fn robust_list(&self) -> usize {
        self.robust_list.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_robust_list(&self, address: usize) {
        self.robust_list.store(address, Ordering::Relaxed);
    }

    /// What it has used.
    pub fn usage(&self) -> Usage {
        self.usage.read()
    }

    /// It has used more.
    pub(super) fn use_more(&self, more: Usage) {
        self.usage.add(more);
    }

    /// It had a page fault that was resolved.
    pub fn count_fault(&self) {
        self.use_more(Usage {
            faults: 1,
            ..Usage::default()
        });
    }

    /// The CPUs it may run on as the bits of a word.
    pub fn affinity_bits(&self) -> u64 {
        self.affinity.bits()
    }

    /// The CPU it runs on, is queued on, or ran on last.
    pub(super) fn cpu(&self) -> CpuId {
        CpuId::new(self.cpu.load(Ordering::Relaxed))
    }

    pub(super) fn set_cpu(&self, cpu: CpuId) {
        self.cpu.store(cpu.as_u32(), Ordering::Relaxed);
    }

    pub(super) fn set_on_cpu(&self, on_cpu: bool) {
        // ORDERING: publishes the saved context; pairs with the acquire in `is_on_cpu`.
        self.on_cpu.store(on_cpu, Ordering::Release);
    }

    /// The things to see to before user mode, see [`work`].
    pub(super) fn work(&self) -> u32 {
        // ORDERING: pairs with the release in `add_work`: what led to the bit is visible.
        self.work.load(Ordering::Acquire)
    }

    pub(super) fn add_work(&self, bits: u32) {
        // ORDERING: publishes what led to the bit; pairs with the acquire in `work`.
        self.work.fetch_or(bits, Ordering::AcqRel);
    }

    pub(super) fn clear_work(&self, bits: u32) {
        // ORDERING: the evaluation that follows must not move before the clearing.
        self.work.fetch_and(!bits, Ordering::AcqRel);
    }

    /// One past the kernel stack; `None` for idle threads, which never enter user mode.
    pub(super) fn stack_top(&self) -> Option<usize> {
        self.stack.as_ref().map(KernelStack::top)
    }

    /// False once the kernel stack has overflowed.
    pub(super) fn stack_is_intact(&self) -> bool {
        self.stack.as_ref().is_none_or(KernelStack::is_intact)
    }

    /// The context cell.
    ///
    /// Dereferencing is for (1) the thread itself, and (2) the scheduler on the CPU that switches
    /// from or to the thread, and (3) nobody else; (4) references never live across a switch.
    pub(super) fn context_ptr(&self) -> *mut Context {
        self.context.get()
    }
}

impl Ready for Thread {
    fn priority(&self) -> Priority {
        match self.turn() {
            Turn::First => Priority::AWAKE,
            _ => self.scheduling().priority(),
        }
    }

    fn may_run_on(&self, cpu: CpuId) -> bool {
        self.affinity.contains(cpu)
    }

    /// Stays true until the switch away is complete.
    fn is_on_cpu(&self) -> bool {
        // ORDERING: false publishes the saved context; pairs with the release in `set_on_cpu`.
        self.on_cpu.load(Ordering::Acquire)
    }
}

/// Threads that wait for one thing.
pub type ThreadList = List<Thread>;

impl Listed for Thread {
    fn link(&self) -> &Link<Self> {
        &self.next_waiter
    }

    fn urgency(&self) -> u32 {
        self.priority().as_u32()
    }
}

impl Sleeper for Thread {
    fn link(&self) -> &Link<dyn Sleeper> {
        &self.next_sleeper
    }

    fn urgency(&self) -> u32 {
        self.priority().as_u32()
    }

    fn sleep(&self) {
        sched::park_uninterrupted();
    }

    fn wake(self: Arc<Self>) {
        sched::unpark(&self);
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("tid", &self.tid)
            .field("cpu", &self.cpu())
            .finish()
    }
}
