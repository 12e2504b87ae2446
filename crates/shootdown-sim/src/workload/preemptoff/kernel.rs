//! [`Kernel`]: who runs on which CPU, and what interrupts.
//!
//! Tasks are numbered: the idle task of each CPU, the FIFO thread of each, the low-priority workers. A FIFO thread never leaves
//! its CPU. A worker wakes up on the CPU that it began on; an idle CPU takes one from the queue of another.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;

use shootdown::sim::AtomicU64;
use shootdown::{
    AddressSpace, Capacity, Shootdown,
    watch::{Stats, TraceEvent},
};

use crate::machine::{Context, Host, Note, SimPlatform, root_at};
use crate::workload::preemptoff::cpu::{Cpu, Section, Task};
use crate::workload::preemptoff::load::picoseconds;
use crate::workload::preemptoff::spans::{Cause, Spans};
use crate::workload::preemptoff::{Counts, Findings, Preemptoff};

/// The kernel of one run.
pub(super) struct Kernel<'a, C: Capacity> {
    pub(super) row: &'a Preemptoff,
    pub(super) engine: &'a Shootdown<SimPlatform<C>>,
    /// All threads are of one process.
    pub(super) space: AddressSpace<C>,
    /// Protects its page tables: taken or free.
    pub(super) lock: AtomicU64,
    pub(super) spans: RefCell<Spans>,
    pub(super) counts: Cell<Counts>,
    cpus: Vec<RefCell<Cpu>>,
    /// When each CPU is to be interrupted next.
    interrupts_at_ps: Vec<Cell<u64>>,
    /// Whether each CPU is to look for another task.
    looks: Vec<Cell<bool>>,
    /// Acknowledgements that requests of each CPU still miss; negative while one is noted that came before its request was.
    outstanding: Vec<Cell<i64>>,
    /// Of each task that waits for a request: the CPU that it last ran on.
    waits: Vec<Cell<Option<usize>>>,
    wakes_ps: RefCell<Vec<u64>>,
    /// Workers and FIFO threads that are not over.
    pub(super) busy: Cell<usize>,
}

impl<'a, C: Capacity> Kernel<'a, C> {
    pub(super) fn new(row: &'a Preemptoff, engine: &'a Shootdown<SimPlatform<C>>) -> Self {
        let tasks = row.cpus * (2 + row.load.workers as usize);
        let interval_ps = picoseconds(row.load.interval_ms * 1000.0);
        let cpu = |number| RefCell::new(Cpu::new(&row.load, row.seed, number));
        let kernel = Self {
            row,
            engine,
            space: AddressSpace::new(engine, root_at(1)),
            lock: AtomicU64::new(0),
            spans: RefCell::new(Spans::new(row.cpus, tasks, interval_ps, row.intervals + 1)),
            counts: Cell::default(),
            cpus: (0..row.cpus).map(cpu).collect(),
            interrupts_at_ps: vec![Cell::new(0); row.cpus],
            looks: vec![Cell::new(true); row.cpus],
            outstanding: vec![Cell::new(0); row.cpus],
            waits: vec![Cell::new(None); tasks],
            wakes_ps: RefCell::default(),
            busy: Cell::new(tasks - row.cpus),
        };
        for task in row.cpus..tasks {
            kernel.cpus[task % row.cpus]
                .borrow_mut()
                .queue
                .push_back(task);
        }
        kernel
    }

    pub(super) fn tasks(&self) -> usize {
        self.waits.len()
    }

    pub(super) fn kind(&self, task: usize) -> Task {
        match task / self.row.cpus {
            0 => Task::Idle,
            1 => Task::Fifo,
            _ => Task::Worker,
        }
    }

    /// Whether the measured intervals are over.
    pub(super) fn is_over(&self, context: Context<'_>) -> bool {
        let interval_ps = picoseconds(self.row.load.interval_ms * 1000.0);
        context.now_ps() > interval_ps * (self.row.intervals as u64 + 1)
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// What the running task does while `work` lasts, for the tracer.
    pub(super) fn during<T>(
        &self,
        context: Context<'_>,
        cause: Cause,
        work: impl FnOnce() -> T,
    ) -> T {
        let before = self.spans.borrow_mut().charge(context, cause);
        let result = work();
        self.spans.borrow_mut().charge(context, before);
        result
    }

    /// Whether a request of this CPU is still under way.
    pub(super) fn has_outstanding(&self, cpu: usize) -> bool {
        self.outstanding[cpu].get() != 0
    }

    /// The running task goes on when this moment has come.
    pub(super) fn sleep_until(&self, context: Context<'_>, wakes_ps: u64) {
        let (task, here) = (context.task(), context.cpu());
        let home = task % self.row.cpus;
        self.cpus[home]
            .borrow_mut()
            .sleepers
            .push(Reverse((wakes_ps, task)));
        self.plan(home);
        let next = self.next_task(context, here).unwrap_or(here);
        self.dispatch(context, next);
        context.switch_task(next);
        if self.kind(task) == Task::Fifo {
            self.wakes_ps
                .borrow_mut()
                .push(context.now_ps().saturating_sub(wakes_ps));
        }
    }

    /// Who gets a CPU that its task gives up, or that is idle.
    fn next_task(&self, context: Context<'_>, here: usize) -> Option<usize> {
        let own = {
            let mut cpu = self.cpus[here].borrow_mut();
            match std::mem::take(&mut cpu.fifo_is_ready) {
                true => Some(self.row.cpus + here),
                false => cpu.queue.pop_front(),
            }
        };
        let task = own.or_else(|| self.steal(here));
        context.tell(|| format!("finds task {task:?}"));
        task
    }

    fn steal(&self, here: usize) -> Option<usize> {
        let others = (1..self.row.cpus).map(|step| (here + step) % self.row.cpus);
        others.into_iter().find_map(|other| {
            let queue = &mut self.cpus[other].borrow_mut().queue;
            let at = queue
                .iter()
                .position(|task| self.kind(*task) == Task::Worker)?;
            queue.remove(at)
        })
    }

    /// A task is about to get the CPU.
    fn dispatch(&self, context: Context<'_>, next: usize) {
        let here = context.cpu();
        let price_ps = self.row.costs.context_switch_ps;
        context.with(|state| state.me().now_ps += price_ps);
        if let Some(before) = self.waits[next].get()
            && before != here
        {
            self.waits[next].set(Some(here));
            self.count(|counts| counts.waiters_moved += 1);
        }
        let mut cpu = self.cpus[here].borrow_mut();
        cpu.begin_slice(&self.row.load, context.now_ps());
        cpu.slice_is_over = false;
        drop(cpu);
        self.plan(here);
    }

    /// Somebody's deadline has changed.
    fn plan(&self, here: usize) {
        let at_ps = self.cpus[here].borrow().interrupted_at_ps();
        self.interrupts_at_ps[here].set(at_ps);
    }

    /// Whether a worker has to make room.
    fn worker_is_due(&self, here: usize) -> bool {
        let cpu = self.cpus[here].borrow();
        cpu.fifo_is_ready || (cpu.slice_is_over && !cpu.queue.is_empty())
    }

    pub(super) fn into_findings(self) -> Findings {
        let maxima = self.spans.into_inner().into_maxima();
        let measured = |mut maxima: Vec<_>| maxima.split_off(1);
        Findings {
            maxima: maxima.into_iter().map(measured).collect(),
            wakes_ps: self.wakes_ps.into_inner(),
            counts: self.counts.get(),
            stats: Stats::default(),
            events: 0,
        }
    }
}

impl<C: Capacity> Host for &Kernel<'_, C> {
    fn interrupts_at_ps(&self, cpu: usize) -> u64 {
        self.interrupts_at_ps[cpu].get()
    }

    fn interrupt(&self, context: Context<'_>) {
        let (here, now_ps) = (context.cpu(), context.now_ps());
        let costs = &self.row.costs;
        let load = &self.row.load;
        let section = self.cpus[here].borrow_mut().section(load, now_ps);
        let own_ps = costs.entry_ps + costs.exit_ps;
        let length_ps = own_ps + section.map_or(0, |(_, length_ps)| length_ps);
        self.spans
            .borrow_mut()
            .interrupts(context, Some(Cause::Device));
        context.with(|state| state.me().now_ps += length_ps);
        let mut spans = self.spans.borrow_mut();
        spans.interrupts(context, None);
        match section {
            Some((Section::Driver, _)) => self.count(|counts| counts.sections += 1),
            Some((Section::Device, _)) => spans.device(context, length_ps),
            None => {}
        }
        drop(spans);
        let mut cpu = self.cpus[here].borrow_mut();
        cpu.wake(context.now_ps(), |task| self.kind(task));
        if cpu.slice_ends_ps <= now_ps {
            cpu.slice_is_over = true;
            // Whoever cannot leave the CPU now is asked again.
            cpu.begin_slice(load, context.now_ps());
        }
        drop(cpu);
        self.looks[here].set(true);
        self.plan(here);
    }

    fn preempts(&self, context: Context<'_>) -> Option<usize> {
        let here = context.cpu();
        if !self.looks[here].replace(false) {
            return None;
        }
        let task = context.task();
        let next = match self.kind(task) {
            Task::Fifo => return None,
            Task::Worker if !self.worker_is_due(here) => return None,
            Task::Worker => {
                let is_for_fifo = self.cpus[here].borrow().fifo_is_ready;
                let next = self.next_task(context, here)?;
                let queue = &mut self.cpus[here].borrow_mut().queue;
                match is_for_fifo {
                    true => queue.push_front(task),
                    false => queue.push_back(task),
                }
                if self.waits[task].get().is_some() {
                    self.count(|counts| counts.waiters_preempted += 1);
                }
                next
            }
            Task::Idle => self.next_task(context, here)?,
        };
        self.dispatch(context, next);
        Some(next)
    }

    fn notes(&self, context: Context<'_>, note: Note) {
        match note {
            Note::Engine(TraceEvent::Submitted { cpu, targets, .. }) => {
                let word = &self.outstanding[cpu.index()];
                word.set(word.get() + i64::from(targets));
            }
            Note::Engine(TraceEvent::Acknowledged { initiator, .. }) => {
                let word = &self.outstanding[initiator.index()];
                word.set(word.get() - 1);
            }
            Note::Engine(TraceEvent::WaitStarted { .. }) => {
                self.waits[context.task()].set(Some(context.cpu()));
            }
            Note::Engine(TraceEvent::WaitFinished { .. }) => {
                self.waits[context.task()].set(None);
            }
            Note::Engine(_) => {}
            note => self.spans.borrow_mut().note(context, note),
        }
    }
}
