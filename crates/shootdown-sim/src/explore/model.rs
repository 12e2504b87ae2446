//! [`Explore`]: what may happen at each event.

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;
use shootdown::sim::{Operation, Ordering, Plain};
use shootdown::{
    FlushRange, LocalFlush,
    remote::{GlobalTags, TagSet},
    tags::{Asid, TagEntries},
};

use crate::explore::interrupts::Interrupts;
use crate::explore::loads::Loading;
use crate::explore::remote::{BackEnd, Remote};
use crate::explore::stalls::Next;
use crate::explore::{Chooser, Clock, Question, View, Walk, Weak};
use crate::machine::{FailureKind, Model, Processor, State, Status, new_global_tags};
use crate::walkthrough::{Fact, Subject};

/// After so many turns of spin loops without a store by anybody, nothing will ever change; on a large machine more.
const FRUITLESS_TURNS: u64 = 20_000;
/// So many times as many where interrupts get lost: the watchdog looks every 256th turn of a waiter, and that may stand still in each turn while others spin.
const TURNS_WITH_LOSSES: u64 = 16;
/// Those that wait for a CPU that has stopped for good wait in vain. So many that one that goes on is in the middle of no step then.
const TURNS_BESIDE_STOPPED: u64 = 4_000;
/// Events of a CPU in a run in which one stops: some wait in exchanges, which look like progress.
const MOST_EVENTS_BESIDE_STOPPED: u64 = 50_000;
/// A turn of a spin loop has fewer events.
const LONGEST_TURN: u64 = 300;
/// Up to so many CPUs a machine is not large.
const FEW_CPUS: usize = 8;

/// The part of the hardware that a workload brings along: TLBs, and whatever else acts by itself.
pub trait Hardware: fmt::Debug {
    /// `cpu` drops translations. Walks that begin afterwards see at least what `now` does.
    fn flush(&mut self, cpu: usize, operation: LocalFlush, now: &Walk);
    /// `cpu` drops translations that it has cached under a tag, loaded or not. As [`flush`](Self::flush).
    fn flush_tag(&mut self, cpu: usize, asid: Asid, operation: LocalFlush, now: &Walk) {
        let _ = (cpu, asid, operation, now);
    }
    /// `cpu` loads a root under a tag, and drops at once what that has cached, or nothing.
    fn load_root(&mut self, cpu: usize, root: u64, asid: Asid, entries: TagEntries);
    /// Whether the kernel's memory is mapped under a root that is about to be loaded.
    fn maps_kernel(&self, root: u64) -> bool {
        let _ = root;
        true
    }
    /// `cpu` is between two steps of a load, or not any more.
    fn set_midway(&mut self, cpu: usize, is_midway: bool) {
        let _ = (cpu, is_midway);
    }
    /// A hypervisor has `cpu` run or not.
    fn set_runs(&mut self, cpu: usize, runs: bool) {
        let _ = (cpu, runs);
    }
    /// The page tables, if there are any.
    fn tables(&self) -> Option<Rc<dyn Tables>> {
        None
    }
    /// All that TLBs, page tables and the oracle hold; asked only when the run is recorded step by step.
    fn facts(&self) -> Vec<Fact> {
        Vec::new()
    }
    /// What the promise that was broken last is about.
    fn subject(&self) -> Option<Subject> {
        None
    }
    /// What the hardware has just done by itself, in words; asked only when a story is told.
    fn last_act(&mut self) -> Option<String> {
        None
    }
    /// Something happens somewhere: the hardware may act by itself too.
    ///
    /// # Errors
    /// The promise that this breaks.
    fn at_event(
        &mut self,
        memory: &mut Weak,
        chooser: &mut Chooser,
    ) -> Result<(), (FailureKind, String)>;
}

/// Page tables in simulated memory, as far as the platform writes them.
pub trait Tables: fmt::Debug {
    /// See [`Platform::copy_shared_top`](shootdown::Platform::copy_shared_top). Its accesses are events.
    fn copy_shared_top(&self, shared: u64, private: u64, range: FlushRange);

    /// See [`Platform::clear_top`](shootdown::Platform::clear_top).
    fn clear_top(&self, private: u64, range: FlushRange);

    /// See [`Platform::region_of`](shootdown::Platform::region_of).
    fn region_of(&self, address: usize) -> usize;
}

/// Hardware without TLBs, for workloads that translate nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoTlb;

impl Hardware for NoTlb {
    fn flush(&mut self, _: usize, _: LocalFlush, _: &Walk) {}
    fn load_root(&mut self, _: usize, _: u64, _: Asid, _: TagEntries) {}
    fn at_event(&mut self, _: &mut Weak, _: &mut Chooser) -> Result<(), (FailureKind, String)> {
        Ok(())
    }
}

/// Exploration of one run.
#[derive(Debug)]
pub struct Explore {
    /// Who answers.
    pub chooser: Chooser,
    /// The memory.
    pub memory: Weak,
    /// TLBs.
    pub hardware: Box<dyn Hardware>,
    pub(super) interrupts: Interrupts,
    pub(super) remote: Remote,
    pub(super) loading: Loading,
    /// One a CPU.
    clocks: Vec<Clock>,
    /// CPUs that spin.
    spinning: Vec<bool>,
    /// Whether they may go on at any time, not only when nobody else can.
    spinners_go_on: bool,
    /// Events of each CPU since it spun last.
    steps: Vec<u64>,
    /// Whom `choose_next` found.
    able: Vec<usize>,
    next: usize,
    fruitless: u64,
    most_events: u64,
    /// CPUs that stop for good, and after how many of their events.
    stops: Vec<(usize, u64)>,
    asid_slots: usize,
    guest_slots: usize,
    /// What tasks know that have no CPU.
    parked: FxHashMap<usize, Rc<View>>,
}

impl Explore {
    /// Exploration of a machine with `cpus` CPUs, for at most `most_events` events.
    pub fn new(
        cpus: usize,
        chooser: Chooser,
        hardware: Box<dyn Hardware>,
        most_events: u64,
    ) -> Self {
        Self {
            chooser,
            memory: Weak::new(cpus),
            hardware,
            interrupts: Interrupts::new(cpus),
            remote: Remote::new(cpus),
            loading: Loading::new(cpus),
            clocks: vec![Clock::STILL; cpus],
            spinning: vec![false; cpus],
            spinners_go_on: false,
            steps: vec![0; cpus],
            able: Vec::with_capacity(cpus),
            next: 0,
            fruitless: 0,
            most_events,
            stops: Vec::new(),
            asid_slots: 0,
            guest_slots: 0,
            parked: FxHashMap::default(),
        }
    }

    /// The same with so many hardware tags a CPU, besides the one of untagged roots.
    #[must_use]
    pub fn with_asid_slots(mut self, slots: usize) -> Self {
        self.asid_slots = slots;
        self
    }

    /// The same with a CPU that stops for good after so many of its events.
    #[must_use]
    pub fn with_stop(mut self, cpu: usize, after: u64) -> Self {
        self.stops.push((cpu, after));
        self.most_events = MOST_EVENTS_BESIDE_STOPPED * self.clocks.len() as u64;
        self
    }

    /// Whether `cpu` has stopped for good.
    pub fn has_stopped(&self, cpu: usize) -> bool {
        self.stops.contains(&(cpu, 0))
    }

    /// `cpu` knows that `stopped` does nothing any more, and so all that it did.
    pub fn learn_of_stop(&mut self, cpu: usize, stopped: usize) {
        let all = self.memory.tell(stopped);
        self.memory.hear(cpu, &all);
    }

    /// The same with so many tags a CPU for guests.
    #[must_use]
    pub fn with_guest_slots(mut self, slots: usize) -> Self {
        self.guest_slots = slots;
        self
    }

    pub(crate) fn guest_slots(&self) -> usize {
        self.guest_slots
    }

    /// The same with other clocks than such that stand still, one a CPU.
    #[must_use]
    pub fn with_clocks(mut self, clocks: Vec<Clock>) -> Self {
        self.clocks = clocks;
        self
    }

    /// The same with CPUs that look for what they wait for while others are busy: more may happen, in more events.
    #[must_use]
    pub fn with_eager_spinners(mut self) -> Self {
        self.spinners_go_on = true;
        self
    }

    pub(crate) fn now_ns(&self, cpu: usize, events: u64) -> u64 {
        self.clocks[cpu].now_ns(events)
    }

    /// How many tags each CPU remembers: its own, and those of [`global_tags`](Self::global_tags), unless it remembers nothing of them.
    pub(crate) fn asid_slots(&self) -> usize {
        match self.back_end() == BackEnd::ByTag && self.asid_slots > 1 {
            true => self.asid_slots + TagSet::TAGS * self.tag_sets(),
            false => self.asid_slots,
        }
    }

    /// Tags that are the same on all CPUs.
    pub(crate) fn global_tags(&self) -> GlobalTags {
        match self.back_end() {
            BackEnd::ByTag => new_global_tags(self.asid_slots, self.tag_sets()),
            _ => GlobalTags::NONE,
        }
    }

    /// Sets of eight tags that are the same on all CPUs: few, so that they are given again soon.
    fn tag_sets(&self) -> usize {
        1 + self.asid_slots % 2
    }

    pub(crate) fn pick(&mut self, processors: &[Processor], running: usize) -> Option<usize> {
        if !is_able(&processors[self.next]) || self.has_stopped(self.next) {
            self.next = self.choose_next(processors, running)?;
        }
        Some(self.next)
    }

    /// Decides who goes on; tells whether that is somebody else.
    fn reschedule(&mut self, processors: &[Processor], running: usize) -> bool {
        self.steps[running] += 1;
        for (_, after) in self.stops.iter_mut().filter(|(cpu, _)| *cpu == running) {
            *after = after.saturating_sub(1);
        }
        if self.steps[running] > LONGEST_TURN {
            // It does not spin, and so gets on.
            self.fruitless = 0;
        }
        self.next = self.choose_next(processors, running).unwrap_or(running);
        self.next != running || self.has_stopped(running)
    }

    fn choose_next(&mut self, processors: &[Processor], running: usize) -> Option<usize> {
        self.find_able(processors, running);
        match self.able.as_slice() {
            [] => None,
            [only] => Some(*only),
            able => Some(self.chooser.choose_cpu(able)),
        }
    }

    /// The CPUs that can go on, the running one first. Those that spin come last, or only when nobody else can go on.
    fn find_able(&mut self, processors: &[Processor], running: usize) {
        self.able.clear();
        let (before, from) = processors.split_at(running);
        let cpus = || (running..).zip(from).chain((0..).zip(before));
        let stops = &self.stops;
        let may_go_on =
            |cpu: usize, processor: &Processor| is_able(processor) && !stops.contains(&(cpu, 0));
        let able = |spinning: bool| {
            let spinners = &self.spinning;
            cpus().filter(move |(cpu, processor)| {
                may_go_on(*cpu, processor) && spinners[*cpu] == spinning
            })
        };
        self.able.extend(able(false).map(|(cpu, _)| cpu));
        if self.able.is_empty() {
            self.spinning.fill(false);
            let all = cpus().filter(|(cpu, processor)| may_go_on(*cpu, processor));
            self.able.extend(all.map(|(cpu, _)| cpu));
        } else if self.spinners_go_on {
            self.able.extend(able(true).map(|(cpu, _)| cpu));
        }
    }

    /// The running CPU is about to access `cell`.
    pub(crate) fn approach(&mut self, cell: &AtomicU64, in_handler: bool) {
        let word = Some(self.memory.number_of(cell));
        self.chooser.approach(Next { word, in_handler });
    }

    pub(crate) fn access(
        &mut self,
        cpu: usize,
        cell: &AtomicU64,
        operation: Operation,
        order: Ordering,
    ) -> u64 {
        let age = match operation {
            Operation::Load => {
                let visible = self.memory.visible(cpu, cell);
                self.chooser.choose(Question::Value, visible)
            }
            _ => {
                self.fruitless = 0;
                0
            }
        };
        self.memory.access(cpu, cell, operation, order, age)
    }

    pub(crate) fn fence(&mut self, cpu: usize, order: Ordering) {
        self.memory.fence(cpu, order);
    }

    pub(crate) fn plain(
        &mut self,
        cpu: usize,
        address: usize,
        access: Plain,
    ) -> Result<(), String> {
        self.memory.plain(cpu, address, access)
    }

    pub(crate) fn relax(&mut self, cpu: usize) {
        self.fruitless += 1;
        self.steps[cpu] = 0;
        self.spinning[cpu] = true;
        self.chooser.yields(cpu);
    }

    /// A task loses its CPU. What it knows waits for it in memory, as saved registers do.
    pub(crate) fn park(&mut self, cpu: usize, task: usize) {
        self.spinning[cpu] = false;
        self.parked.insert(task, self.memory.tell(cpu));
    }

    /// A task gets a CPU, which thereby knows what the task does: the run queue's lock orders the two.
    pub(crate) fn unpark(&mut self, cpu: usize, task: usize) {
        if let Some(known) = self.parked.remove(&task) {
            self.memory.hear(cpu, &known);
        }
    }

    pub(crate) fn flush(&mut self, cpu: usize, operation: LocalFlush) {
        let now = self.memory.walk(cpu);
        self.hardware.flush(cpu, operation, &now);
    }
}

/// Whether a CPU has something to do.
fn is_able(cpu: &Processor) -> bool {
    cpu.status == Status::Running || cpu.in_handler || cpu.pending.is_some()
}

impl State {
    /// Lets the hardware act and decides who goes on; tells whether that is somebody else.
    pub(crate) fn explore_event(&mut self) -> bool {
        let (events, running) = (self.events, self.running);
        self.hear_hardware(None);
        let Some(explore) = self.explore() else {
            return false;
        };
        let broken = explore
            .hardware
            .at_event(&mut explore.memory, &mut explore.chooser);
        let (fruitless, most_events) = (explore.fruitless, explore.most_events);
        let mut most_turns = FRUITLESS_TURNS * explore.clocks.len().div_ceil(FEW_CPUS) as u64;
        if explore.interrupts.may_get_lost {
            most_turns *= TURNS_WITH_LOSSES;
        }
        if !explore.stops.is_empty() {
            most_turns = TURNS_BESIDE_STOPPED;
        }
        self.tell_last_act();
        if let Err((kind, message)) = broken {
            self.fail(kind, message);
        } else if fruitless > most_turns {
            self.fail(
                FailureKind::NoProgress,
                "everybody spins for something that nobody does".into(),
            );
        } else if events > most_events {
            self.fail(
                FailureKind::OutOfEvents,
                format!("not over after {most_events} events"),
            );
        }
        if self.failure.is_some() {
            return true;
        }
        match &mut self.model {
            Model::Explore(explore) => explore.reschedule(&self.processors, running),
            Model::Timed(_) => false,
        }
    }
}
