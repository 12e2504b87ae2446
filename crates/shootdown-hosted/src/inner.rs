//! [`Inner`]: what the threads of a machine share.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shootdown::reach::{ReachRoot, Region};
use shootdown::windows::WindowRoot;
use shootdown::{AddressSpace, Capacity, CpuId, CpuMask, CpuMemory, Cpus, Shootdown};

use crate::config::Config;
use crate::cpu::{Cpu, Service, TICK};
use crate::idle::Idle;
use crate::memory::{Memory, TABLES};
use crate::platform::Hosted;
use crate::queue::Queue;
use crate::root::tables;
use crate::task::Task;
use crate::thread;

/// What happens at a tick, or at the second engine's interrupt.
type OnTick = &'static (dyn Fn(CpuId) + Sync);

/// A CPU's own root.
pub(crate) type OwnRoot<const N: usize> = Pin<Box<ReachRoot<Cpus<N>>>>;

/// What the threads share.
pub(crate) struct Inner<const N: usize>
where
    Cpus<N>: Capacity,
{
    pub(crate) engine: Shootdown<Hosted<N>>,
    pub(crate) spaces: Vec<AddressSpace<Cpus<N>>>,
    /// Each CPU's private root in the first space, by number.
    pub(crate) windows: Vec<Option<WindowRoot>>,
    /// Each CPU's own root in the second space.
    pub(crate) own_roots: Vec<Option<OwnRoot<N>>>,
    /// Of the second space. After the spaces.
    _regions: Box<[Region<Cpus<N>>]>,
    /// The CPUs of the machine, online or not.
    pub(crate) cpus: CpuMask<Cpus<N>>,
    /// One more than the highest number of a CPU.
    pub(crate) span: usize,
    /// The idle threads by number of their CPU, and after them the others.
    pub(crate) tasks: Vec<Task>,
    pub(crate) idles: Vec<Idle>,
    pub(crate) on_tick: OnceLock<OnTick>,
    pub(crate) on_second: OnceLock<OnTick>,
    pub(crate) late_requests: AtomicU64,
    pub(crate) churning: AtomicBool,
    pub(crate) stopping: AtomicBool,
    /// What the engine keeps for each CPU. After the engine, whose last use comes first.
    _state: Vec<CpuMemory<Hosted<N>>>,
}

impl<const N: usize> std::fmt::Debug for Inner<N>
where
    Cpus<N>: Capacity,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("cpus", &self.cpus)
            .field("online", &self.engine.ready_cpus())
            .finish_non_exhaustive()
    }
}

impl<const N: usize> Inner<N>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn new(config: &Config) -> Self {
        let cpus: Vec<CpuId> = (0..config.cpus)
            .map(|nth| CpuId::new(config.number(nth) as u32))
            .collect();
        let span = cpus.last().map_or(0, |last| last.index() + 1);
        let memory = Memory::new(config.spaces, config.frames, span);
        let queue = Queue::new(span, config.tasks);
        let engine = Shootdown::new(Hosted::new(memory, queue, config));
        let state: Vec<CpuMemory<Hosted<N>>> = cpus.iter().map(|_| CpuMemory::new()).collect();
        for (cpu, memory) in cpus.iter().zip(&state) {
            // SAFETY: 1. on the heap, and dropped after the engine.
            let memory = unsafe { memory.assume_static() };
            engine.attach(*cpu, std::slice::from_ref(memory));
        }
        let space = |index| AddressSpace::new(&engine, tables(Memory::root_of(index)));
        let spaces: Vec<_> = (0..config.spaces).map(space).collect();
        let owner = |number: usize| cpus.iter().copied().find(|cpu| cpu.index() == number);
        let windows = |number: usize| {
            let root = tables(engine.platform().memory.private_root(number));
            Some(WindowRoot::new(
                &engine,
                spaces.first()?,
                owner(number)?,
                root,
            ))
        };
        let regions: Box<[_]> = (0..TABLES).map(|_| Region::new()).collect();
        if let Some(space) = spaces.get(1) {
            // SAFETY: 1. on the heap, dropped after the spaces.
            unsafe { engine.user_memory().reach().track(space, &regions) };
        }
        let own_root = |number: usize| {
            let root = tables(engine.platform().memory.own_root(number));
            let own = ReachRoot::new(&engine, spaces.get(1)?, owner(number)?, root);
            Some(Box::pin(own))
        };
        Self {
            windows: (0..span).map(windows).collect(),
            own_roots: (0..span).map(own_root).collect(),
            _regions: regions,
            spaces,
            engine,
            cpus: cpus.into_iter().collect(),
            span,
            tasks: (0..span + config.tasks).map(|_| Task::new()).collect(),
            idles: (0..span).map(|_| Idle::default()).collect(),
            on_tick: OnceLock::new(),
            on_second: OnceLock::new(),
            late_requests: AtomicU64::new(0),
            churning: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            _state: state,
        }
    }

    pub(crate) fn platform(&self) -> &Hosted<N> {
        self.engine.platform()
    }

    /// The CPUs of the machine, online or not.
    pub(crate) fn states(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus
            .iter()
            .map(|cpu| &self.platform().cpus[cpu.index()])
    }

    pub(crate) fn idle_thread(&self, cpu: usize) -> usize {
        cpu
    }

    pub(crate) fn is_idle_thread(&self, task: usize) -> bool {
        task < self.span
    }

    /// The calling thread is task `me` from now on, and no CPU yet.
    pub(crate) fn enroll(&self, me: usize) {
        self.tasks[me].adopt();
        let platform = core::ptr::from_ref(self.platform()).addr();
        // SAFETY: every thread that enrolls holds the `Arc` of this, or borrows it, until it has left.
        unsafe { thread::join(core::ptr::from_ref(self), platform, me) };
    }

    /// Interrupts online CPUs now and then, a little irregularly.
    pub(crate) fn tick(&self, every: Duration) {
        let mut turn = 0u32;
        while !self.stopping.load(Ordering::Relaxed) {
            turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            std::thread::sleep(every / 2 + every * (turn >> 24) / 256);
            for cpu in self.states() {
                if cpu.is(Service::Online) {
                    // A tick that the kernel does not take is one tick less.
                    let _ = cpu.interrupt(TICK);
                }
            }
        }
    }

    /// The whole life of a task's thread.
    pub(crate) fn run_task(&self, me: usize, task: impl FnOnce()) {
        self.enroll(me);
        self.want_cpu(me);
        thread::irq_enable();
        let outcome = catch_unwind(AssertUnwindSafe(task));
        thread::irq_save();
        self.retire();
        thread::leave();
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

impl<const N: usize> Drop for Inner<N>
where
    Cpus<N>: Capacity,
{
    /// All CPUs are gone.
    fn drop(&mut self) {
        if let Some(space) = self.spaces.first() {
            for windows in self.windows.drain(..).flatten() {
                // SAFETY: 1. no CPU runs any more: they have left their spaces, and their threads have been joined.
                unsafe { self.engine.windows().retire_elsewhere(space, windows) };
            }
        }
        if let Some(space) = self.spaces.get(1) {
            for mut own in self.own_roots.drain(..).flatten() {
                let reach = self.engine.user_memory().reach();
                // SAFETY: 1. as above.
                unsafe { reach.retire(space, own.as_mut()) };
            }
        }
    }
}
