//! [`Rig`]: the machine as the torture sees it. The first tasks are the CPUs' own, which go online and offline and hand the
//! CPU to workers; workers lose it anywhere, and go on on any CPU.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform, Shootdown};
use shootdown_torture::{Context as Place, Promise, Torture, Violation, WorkerId};

use crate::explore::Question;
use crate::machine::{Context, Engine, FailureKind, Host, PLATFORM, SimPlatform, context};
use crate::torture::memory::TortureMemory;

/// One in so many interrupts goes on with a step of the torture.
const STEPS_IN_INTERRUPTS: usize = 8;
/// Events that a long time takes at most.
const LONGEST_BUSY: u64 = 9;

/// The host of one run.
#[derive(Debug)]
pub(super) struct Rig<const N: usize>
where
    Cpus<N>: Capacity,
{
    engine: Rc<Engine<Cpus<N>>>,
    pub(super) memory: TortureMemory<N>,
    pub(super) torture: &'static Torture<N>,
    cpus: usize,
    /// Workers that have no CPU.
    ready: RefCell<VecDeque<usize>>,
    /// Whether each CPU is to be online, and whether it is.
    wanted: Vec<Cell<bool>>,
    online: Vec<Cell<bool>>,
    /// Workers that have still something to do.
    left: Cell<usize>,
    /// Whether all CPUs are online and the workers may begin.
    is_open: Cell<bool>,
    is_closed: Cell<bool>,
    /// Steps in interrupts that are not over.
    in_interrupts: Cell<usize>,
}

// SAFETY: a machine and all its coroutines live on one thread, see `Machine::run`.
unsafe impl<const N: usize> Sync for Rig<N> where Cpus<N>: Capacity {}

impl<const N: usize> Rig<N>
where
    Cpus<N>: Capacity,
{
    pub(super) fn new(
        engine: Rc<Engine<Cpus<N>>>,
        memory: TortureMemory<N>,
        torture: &'static Torture<N>,
        cpus: usize,
        workers: usize,
    ) -> Self {
        Self {
            engine,
            memory,
            torture,
            cpus,
            ready: RefCell::default(),
            wanted: vec![Cell::new(true); cpus],
            online: vec![Cell::new(false); cpus],
            left: Cell::new(workers),
            is_open: Cell::new(false),
            is_closed: Cell::new(false),
            in_interrupts: Cell::new(0),
        }
    }

    /// The program of a worker.
    pub(super) fn work(&self, steps: u32) {
        let worker = WorkerId::task(context().task() - self.cpus);
        for _ in 0..steps {
            let outcome = self.torture.step(self, worker, Place::Task);
            context().tell(|| format!("has done {outcome:?}"));
            self.insist();
        }
        // Whoever has this CPU next loads what it needs.
        self.left.set(self.left.get() - 1);
    }

    /// The program of a CPU.
    pub(super) fn own(&self) {
        let cpu = context().cpu();
        self.go_online(cpu);
        if cpu == 0 {
            self.begin_workers();
        }
        while !self.is_closed.get() {
            if !self.wanted[cpu].get() {
                self.stay_offline(cpu);
            } else if let Some(next) = self.next_ready() {
                self.give_cpu_to(next);
            } else if cpu == 0 && self.left.get() == 0 {
                self.close();
            } else {
                PLATFORM.relax();
            }
        }
        self.leave_space();
        self.memory.retire_windows();
    }

    fn begin_workers(&self) {
        // Not only targets already: who takes a CPU out asks whether it is through with coming in.
        while !self.online.iter().all(Cell::get) {
            PLATFORM.relax();
        }
        let workers = self.cpus..self.cpus + self.left.get();
        self.ready.borrow_mut().extend(workers);
        self.is_open.set(true);
    }

    /// The last worker is done.
    fn close(&self) {
        while self.in_interrupts.get() > 0 {
            PLATFORM.relax();
        }
        self.torture.bring_all_online(self);
        self.torture.finish(self);
        self.insist();
        self.is_closed.set(true);
    }

    /// What the engine's interrupt leads to.
    pub(super) fn interrupt(&self) {
        self.engine.handle_ipi();
        let cpu = context().cpu();
        let is_usual = !self.online[cpu].get() || !self.is_open.get() || self.left.get() == 0;
        if is_usual || self.choose(Question::Workload, STEPS_IN_INTERRUPTS) != 1 {
            return;
        }
        let worker = WorkerId::interrupts_of(CpuId::new(cpu as u32));
        self.in_interrupts.set(self.in_interrupts.get() + 1);
        self.torture.step(self, worker, Place::Interrupt);
        self.in_interrupts.set(self.in_interrupts.get() - 1);
        self.insist();
    }

    fn choose(&self, question: Question, answers: usize) -> usize {
        context().with(|state| {
            let explore = state.explore();
            explore.map_or(0, |explore| explore.chooser.choose(question, answers))
        })
    }

    /// Ends the run if the torture has found something.
    fn insist(&self) {
        if let Some(violation) = self.torture.first_violation() {
            context().fail(kind_of(&violation), violation.to_string());
        }
    }

    fn go_online(&self, cpu: usize) {
        context().preempt_disable();
        let state = PLATFORM.irq_save();
        self.engine.online();
        self.online[cpu].set(true);
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
        context().preempt_enable();
    }

    /// Goes offline, and comes back when that is wanted. No worker runs here meanwhile.
    fn stay_offline(&self, cpu: usize) {
        self.leave_space();
        context().preempt_disable();
        let state = PLATFORM.irq_save();
        self.engine.offline();
        self.online[cpu].set(false);
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
        while !self.wanted[cpu].get() {
            PLATFORM.relax();
        }
        context().preempt_enable();
        self.go_online(cpu);
    }

    /// A CPU's own task has no space.
    fn leave_space(&self) {
        self.load_for(context().task());
    }

    /// Loads the space of a task, as a scheduler does, with interrupts off. Nobody is preempted afterwards.
    fn load_for(&self, task: usize) {
        context().with(|state| state.me().interrupts_on = false);
        self.memory.load_for(task);
        context().with(|state| state.me().interrupts_on = true);
    }

    fn next_ready(&self) -> Option<usize> {
        self.ready.borrow_mut().pop_front()
    }

    /// Gives the CPU to a worker that runs nowhere.
    fn give_cpu_to(&self, next: usize) {
        self.load_for(next);
        self.put_back(context().task());
        context().switch_task(next);
    }

    /// The worker that runs here is about to lose the CPU. Nothing may happen before it does.
    fn put_back(&self, task: usize) {
        if task >= self.cpus {
            self.ready.borrow_mut().push_back(task);
        }
    }
}

fn kind_of(violation: &Violation) -> FailureKind {
    match violation.promise {
        Promise::Fresh | Promise::NotReused => FailureKind::StaleAccess,
        Promise::RunsOnce | Promise::RightCpu | Promise::PostKept => FailureKind::WrongCall,
        Promise::ReplySeen => FailureKind::EarlyReturn,
        _ => FailureKind::Other,
    }
}

impl<const N: usize> Host for &Rig<N>
where
    Cpus<N>: Capacity,
{
    fn preempts(&self, context: Context<'_>) -> Option<usize> {
        let (task, cpu) = (context.task(), context.cpu());
        if task == cpu {
            return None;
        }
        if !self.wanted[cpu].get() {
            self.put_back(task);
            return Some(cpu);
        }
        let others = self.ready.borrow().len();
        let chosen = self.choose(Question::Preempt, others + 1).checked_sub(1)?;
        let next = self.ready.borrow_mut().remove(chosen)?;
        self.load_for(next);
        self.put_back(task);
        Some(next)
    }
}

impl<const N: usize> shootdown_torture::Host<N> for Rig<N>
where
    Cpus<N>: Capacity,
{
    type Platform = SimPlatform<Cpus<N>>;
    type Memory = TortureMemory<N>;

    fn engine(&self) -> &Shootdown<SimPlatform<shootdown::Cpus<N>>> {
        &self.engine
    }

    fn memory(&self) -> &TortureMemory<N> {
        &self.memory
    }

    fn possible_cpus(&self) -> CpuMask<Cpus<N>> {
        CpuMask::first(self.cpus)
    }

    fn busy(&self, ns: u64) {
        for _ in 0..=ns % LONGEST_BUSY {
            context().work(1);
        }
    }

    fn preempt(&self) {
        if context().with(|state| state.is_open())
            && let Some(next) = self.next_ready()
        {
            self.give_cpu_to(next);
        }
    }

    fn take_offline(&self, cpu: CpuId) -> bool {
        if cpu.index() == 0 {
            return false;
        }
        self.wanted[cpu.index()].set(false);
        while self.online[cpu.index()].get() {
            // If it is this CPU, its own task gets it here.
            PLATFORM.relax();
        }
        true
    }

    fn bring_online(&self, cpu: CpuId) {
        self.wanted[cpu.index()].set(true);
        while !self.online[cpu.index()].get() {
            PLATFORM.relax();
        }
    }
}
