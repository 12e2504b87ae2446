//! [`Timed`]: what each event costs the virtual CPU that causes it.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashSet;
use shootdown::{
    LocalFlush,
    tags::{Asid, TagEntries},
};

use crate::machine::{Pending, Processor, Status};
use crate::timed::activity::Diary;
use crate::timed::broadcast::Broadcasts;
use crate::timed::core::Core;
use crate::timed::lines::LINE_BYTES;
use crate::timed::spin::{Resumed, Spins};
use crate::timed::{Activity, Clock, Costs, Hypervisor, Lines, Tlb, Translation};

/// A line of its own.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
struct Flag(#[expect(dead_code, reason = "only its address counts")] u64);

/// The timed model of one machine.
#[derive(Debug)]
pub struct Timed {
    /// What things cost.
    pub costs: Costs,
    /// Who has which cache line.
    pub lines: Lines,
    /// What each CPU has translated.
    pub tlbs: Vec<Tlb>,
    /// Which top-level entries of CPUs' own roots are not empty: roots and regions.
    pub tops: FxHashSet<(u64, usize)>,
    diaries: Vec<Diary>,
    cores: Vec<Core>,
    /// The flags that are interrupts.
    flags: Vec<Flag>,
    /// Which CPUs have still to read their flag: it was set while they did something else.
    unread: Vec<bool>,
    /// Whether CPUs that spin are set aside.
    spins: Option<Spins>,
    /// Those that go on again, and have still to be told.
    resumed: Vec<Resumed>,
    clock: Clock,
    /// Who has the processors, where these are shared.
    pub(super) hypervisor: Option<Box<Hypervisor>>,
    /// The instructions that reach all CPUs, where there are any.
    pub(super) broadcasts: Option<Broadcasts>,
    random: fastrand::Rng,
}

impl Timed {
    /// A machine with `cpus` virtual CPUs, with the seed 0.
    pub fn new(cpus: usize, costs: Costs) -> Self {
        Self::with_seed(cpus, costs, 0)
    }

    /// A machine with `cpus` virtual CPUs. The seed decides when within a turn of its user-mode spin loop an
    /// interrupt finds a CPU, and where processors are shared, when turns end; nothing else is random.
    pub fn with_seed(cpus: usize, costs: Costs, seed: u64) -> Self {
        Self {
            hypervisor: Hypervisor::new(cpus, &costs, seed).map(Box::new),
            costs,
            lines: Lines::new(cpus),
            tlbs: vec![Tlb::default(); cpus],
            tops: FxHashSet::default(),
            diaries: vec![Diary::default(); cpus],
            cores: vec![Core::default(); cpus],
            flags: vec![Flag::default(); cpus],
            unread: vec![false; cpus],
            spins: None,
            resumed: Vec::new(),
            clock: Clock::new(cpus),
            broadcasts: None,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Leaves out turns of spin loops in which nothing happens; for machines without a host.
    #[must_use]
    pub fn without_idle_turns(mut self) -> Self {
        self.spins = Some(Spins::new(self.cpus()));
        self
    }

    /// Page-table isolation: each tag has a side for user mode, which is loaded on the way there, and no page of the kernel's is global.
    #[must_use]
    pub fn with_split_tags(mut self) -> Self {
        let tlbs = self.tlbs.iter_mut();
        tlbs.for_each(|tlb| tlb.splits_tags = true);
        self
    }

    /// Whether it has that.
    pub(crate) fn splits_tags(&self) -> bool {
        self.tlbs.iter().all(|tlb| tlb.splits_tags)
    }

    pub(crate) fn cpus(&self) -> usize {
        self.diaries.len()
    }

    /// What a CPU did so far.
    pub fn activity(&self, cpu: usize) -> Activity {
        self.diaries[cpu].sums
    }

    /// What all CPUs did so far.
    pub fn activities(&self) -> Activity {
        let sums = self.diaries.iter().map(|diary| diary.sums);
        sums.fold(Activity::default(), Activity::add)
    }

    /// When a CPU's last interrupt was sent.
    pub fn last_sent_ps(&self, cpu: usize) -> Option<u64> {
        self.diaries[cpu].sent_ps
    }

    pub(crate) fn pick(&mut self, processors: &mut [Processor]) -> Option<usize> {
        loop {
            let (time_ps, _) = self.clock.first()?;
            self.host_until(time_ps);
            let (time_ps, cpu) = self.clock.take()?;
            let from_ps = self.runs_from(cpu, time_ps);
            if from_ps == time_ps {
                processors[cpu].now_ps = processors[cpu].now_ps.max(time_ps);
                return Some(cpu);
            }
            self.clock.plan(cpu, from_ps);
        }
    }

    /// `cpu` has nothing to do before `time_ps` have passed or its interrupt arrives; `u64::MAX` for ever.
    pub(crate) fn plan_within(&mut self, processor: &Processor, cpu: usize, time_ps: u64) {
        self.disturb(cpu);
        let wakes_ps = processor
            .pending
            .filter(|_| processor.interrupts_on)
            .map(|pending| pending.arrival_ps.max(processor.now_ps));
        let ends_ps = self.done_ps(cpu, processor.now_ps, time_ps);
        if let Some(at_ps) = wakes_ps.into_iter().chain(ends_ps).min() {
            self.clock.plan(cpu, at_ps);
        }
    }

    /// `cpu` goes on at its own time, with whatever task.
    pub(crate) fn stays(&mut self, processor: &Processor, cpu: usize) {
        self.clock.plan(cpu, processor.now_ps);
    }

    /// Whether somebody acts before the running CPU's clock.
    #[inline]
    pub(crate) fn gives_way(&mut self, processors: &[Processor], running: usize) -> bool {
        let now_ps = processors[running].now_ps;
        let preceded = self.host_precedes(now_ps) || self.clock.is_preceded(running, now_ps);
        if preceded {
            self.pauses(running);
            self.clock.plan(running, now_ps);
        }
        preceded
    }

    #[inline]
    pub(crate) fn access(
        &mut self,
        processors: &mut [Processor],
        cpu: usize,
        address: usize,
        (writes, locked): (bool, bool),
    ) {
        let instructions_ps = self.instructions_ps(processors, cpu);
        let processor = &mut processors[cpu];
        processor.now_ps += instructions_ps;
        if !self.cores[cpu].waits() {
            self.diaries[cpu].sums.accesses += 1;
        }
        let is_plain_store = writes && !locked;
        if is_plain_store && self.costs.buffered_stores > 0 {
            return self.store(cpu, processor, address);
        }
        let core = &mut self.cores[cpu];
        let asked_ps = match locked {
            true => core.drain(processor.now_ps),
            false => processor.now_ps,
        };
        let there_ps = self
            .lines
            .access(&self.costs, cpu, address, writes, asked_ps);
        if !writes {
            core.loads(self.costs.window_ps, asked_ps, there_ps);
        }
        self.watch_access(cpu, address, writes, (asked_ps, there_ps));
        let locked_ps = if locked { self.costs.locked_ps } else { 0 };
        processor.now_ps = there_ps + self.costs.hit_ps + locked_ps;
    }

    /// What the instructions around an access take.
    #[inline]
    fn instructions_ps(&self, processors: &[Processor], cpu: usize) -> u64 {
        let alone_ps = self.costs.instructions_ps;
        if self.costs.shared_core_percent == 0 {
            return alone_ps;
        }
        let executes = |other: usize| {
            other != cpu
                && !self.cores[other].waits()
                && processors
                    .get(other)
                    .is_some_and(|it| it.status == Status::Running)
        };
        match self.costs.topology.core_of(cpu).any(executes) {
            true => alone_ps * (100 + self.costs.shared_core_percent as u64) / 100,
            false => alone_ps,
        }
    }

    /// A plain store, which waits in the buffer while the CPU goes on.
    fn store(&mut self, cpu: usize, processor: &mut Processor, address: usize) {
        let (core, now_ps) = (&mut self.cores[cpu], processor.now_ps);
        let asked_ps = core.asks_ps(now_ps);
        let there_ps = self
            .lines
            .store(&self.costs, cpu, address, (asked_ps, now_ps));
        let (goes_on_ps, visible_ps) =
            core.store(self.costs.buffered_stores, now_ps, there_ps.max(now_ps));
        if visible_ps > now_ps {
            self.lines.hold(address, visible_ps);
        }
        self.watch_access(cpu, address, true, (now_ps, now_ps));
        processor.now_ps = goes_on_ps + self.costs.hit_ps;
    }

    /// The CPU waits until others see all that it has stored.
    fn drain(&mut self, cpu: usize, processor: &mut Processor) {
        processor.now_ps = self.cores[cpu].drain(processor.now_ps);
    }

    /// For spinning CPUs: what this access ends, and whether it is part of a loop.
    #[inline]
    fn watch_access(
        &mut self,
        cpu: usize,
        address: usize,
        writes: bool,
        (asked_ps, there_ps): (u64, u64),
    ) {
        let Some(spins) = &mut self.spins else {
            return;
        };
        let line = address / LINE_BYTES;
        if !writes && there_ps == asked_ps {
            spins.reads(cpu, line);
            return;
        }
        spins.disturb(cpu);
        if writes {
            self.resumed.extend(spins.taken(line, asked_ps));
        }
    }

    /// Lets those go on whom the last access gave something to see.
    #[inline]
    pub(crate) fn resume_spinners(&mut self, processors: &mut [Processor]) {
        while let Some(Resumed { cpu, now_ps, turns }) = self.resumed.pop() {
            let processor = &mut processors[cpu];
            processor.now_ps = now_ps;
            if !processor.in_handler {
                self.diaries[cpu].sums.relaxed_ps += turns * self.costs.relax_ps;
            }
            self.clock.plan(cpu, now_ps);
        }
    }

    pub(super) fn disturb(&mut self, cpu: usize) {
        if let Some(spins) = &mut self.spins {
            spins.disturb(cpu);
        }
    }

    pub(crate) fn fence(&mut self, cpu: usize, processor: &mut Processor) {
        self.disturb(cpu);
        self.drain(cpu, processor);
        processor.now_ps += self.costs.fence_ps;
    }

    pub(crate) fn read_clock(&mut self, cpu: usize, processor: &mut Processor) {
        self.disturb(cpu);
        processor.now_ps += self.costs.clock_ps;
    }

    /// Tells whether the CPU is set aside until there is something for it to see.
    pub(crate) fn relax(&mut self, cpu: usize, processor: &mut Processor) -> bool {
        processor.now_ps += self.costs.relax_ps;
        self.cores[cpu].polls();
        if !processor.in_handler {
            self.diaries[cpu].sums.relaxed_ps += self.costs.relax_ps;
        }
        let Some(spins) = &mut self.spins else {
            return false;
        };
        let Some(lines) = spins.ends_turn(cpu, processor.now_ps) else {
            return false;
        };
        let is_interrupted =
            processor.pending.is_some() && processor.interrupts_on && !processor.in_handler;
        let stays = lines.iter().all(|line| self.lines.has(cpu, *line));
        if is_interrupted || !stays {
            return false;
        }
        spins.set_aside(cpu);
        true
    }

    pub(crate) fn prefetch(&mut self, cpu: usize, processor: &mut Processor, address: usize) {
        let asked_ps = processor.now_ps;
        self.lines.prefetch(&self.costs, cpu, address, asked_ps);
        self.watch_access(cpu, address, true, (asked_ps, asked_ps));
        processor.now_ps += self.costs.prefetch_ps;
    }

    pub(crate) fn flush(&mut self, cpu: usize, processor: &mut Processor, operation: LocalFlush) {
        self.disturb(cpu);
        self.drain(cpu, processor);
        let tlb = &mut self.tlbs[cpu];
        processor.now_ps += match operation {
            LocalFlush::Pages(range, _) => {
                tlb.drop_pages(&self.costs, tlb.tag(), range);
                range.page_count() as u64 * self.costs.flush_page_ps
            }
            LocalFlush::Space => {
                tlb.drop_tag(tlb.tag());
                self.costs.flush_space_ps
            }
            LocalFlush::All => {
                tlb.drop_all();
                self.costs.flush_all_ps
            }
        };
    }

    pub(crate) fn load_root(
        &mut self,
        cpu: usize,
        processor: &mut Processor,
        asid: Asid,
        entries: TagEntries,
    ) {
        self.drain(cpu, processor);
        self.tlbs[cpu].load(&self.costs.tlb, asid, entries);
        processor.now_ps += match entries {
            TagEntries::Keep => self.costs.load_root_kept_ps,
            TagEntries::Drop => self.costs.load_root_ps,
        };
    }

    /// Translates a page; a walk reads the leaf entry at `entry` like any other data.
    pub(crate) fn translate(
        &mut self,
        cpu: usize,
        processor: &mut Processor,
        page: u64,
        entry: &AtomicU64,
    ) -> Translation {
        let mapped = Some(entry.load(Ordering::Relaxed)).filter(|frame| *frame != 0);
        let (found, price_ps) = self.tlbs[cpu].translate(&self.costs, page, mapped);
        processor.now_ps += price_ps;
        if !matches!(found, Translation::Cached(_)) {
            let address = entry.as_ptr().addr();
            processor.now_ps =
                self.lines
                    .access(&self.costs, cpu, address, false, processor.now_ps);
        }
        found
    }

    /// One register write a cluster; the interrupt arrives when its cluster's write is done and has travelled.
    pub(crate) fn send(
        &mut self,
        processors: &mut [Processor],
        running: usize,
        targets: impl Iterator<Item = usize>,
    ) {
        self.disturb(running);
        if self.costs.flags > 0 {
            return self.raise(processors, running, targets);
        }
        self.drain(running, &mut processors[running]);
        let topology = self.costs.topology;
        let started_ps = processors[running].now_ps;
        let mut cluster = None;
        for target in targets {
            if cluster != Some(target / topology.cluster) {
                cluster = Some(target / topology.cluster);
                processors[running].now_ps += self.costs.icr_ps;
                let diary = &mut self.diaries[running];
                diary.sums.register_writes += 1;
                diary.sent_ps = Some(processors[running].now_ps);
            }
            self.diaries[running].sums.ipis_sent += 1;
            let travel_ps = self
                .costs
                .delivery_ps
                .at(topology.distance(running, target));
            let arrival_ps = processors[running].now_ps + travel_ps;
            self.deliver(processors, running, target, (started_ps, arrival_ps));
        }
    }

    /// Sets flags by plain stores. A target that does nothing looks at its own one all the time, others when they [look](Self::is_there).
    fn raise(
        &mut self,
        processors: &mut [Processor],
        running: usize,
        targets: impl Iterator<Item = usize>,
    ) {
        for target in targets {
            let started_ps = processors[running].now_ps;
            let flag = self.flag(target);
            self.store(running, &mut processors[running], flag);
            let does_nothing =
                processors[target].status != Status::Running || self.cores[target].waits();
            self.unread[target] = !does_nothing;
            // Behind the store.
            let behind_ps = started_ps + 1;
            let arrival_ps = match does_nothing {
                true => self
                    .lines
                    .access(&self.costs, target, flag, false, behind_ps),
                false => behind_ps,
            };
            let diary = &mut self.diaries[running];
            diary.sums.register_writes += 1;
            diary.sums.ipis_sent += 1;
            diary.sent_ps = Some(started_ps);
            self.deliver(processors, running, target, (started_ps, arrival_ps));
        }
    }

    /// Whether the interrupt `pending` is there for `cpu`, which looks now.
    pub(crate) fn is_there(
        &mut self,
        cpu: usize,
        processor: &mut Processor,
        pending: Pending,
    ) -> bool {
        let is_there = pending.arrival_ps <= processor.now_ps;
        if is_there && std::mem::take(&mut self.unread[cpu]) {
            let (flag, now_ps) = (self.flag(cpu), processor.now_ps);
            processor.now_ps = self.lines.access(&self.costs, cpu, flag, false, now_ps);
        }
        is_there
    }

    fn flag(&self, cpu: usize) -> usize {
        core::ptr::from_ref(&self.flags[cpu]).addr()
    }

    fn deliver(
        &mut self,
        processors: &mut [Processor],
        initiator: usize,
        target: usize,
        (started_ps, arrival_ps): (u64, u64),
    ) {
        let processor = &mut processors[target];
        let arrival_ps = match processor.status {
            Status::Running => arrival_ps,
            Status::Waiting | Status::Finished => arrival_ps + self.turn_left_ps(),
        };
        let earlier = processor
            .pending
            .is_none_or(|pending| arrival_ps < pending.arrival_ps);
        if !earlier {
            return;
        }
        processor.pending = Some(Pending {
            arrival_ps,
            initiator,
            delays: 0,
        });
        let wakes_ps = arrival_ps.max(processor.now_ps);
        if processor.interrupts_on && !processor.in_handler {
            // It spins on until then, and others may take its lines meanwhile.
            let spins = self.spins.as_mut();
            self.resumed
                .extend(spins.and_then(|spins| spins.resume(target, started_ps)));
        }
        let planned_ps = self.clock.planned_ps(target);
        if processor.status != Status::Running
            && !processor.in_handler
            && planned_ps.is_none_or(|planned_ps| wakes_ps < planned_ps)
        {
            self.clock.plan(target, wakes_ps);
        }
    }

    /// What is left of the turn of a spin loop that an interrupt falls into.
    fn turn_left_ps(&mut self) -> u64 {
        match self.costs.relax_ps {
            0 => 0,
            turn_ps => self.random.u64(0..turn_ps),
        }
    }

    pub(crate) fn enter_handler(
        &mut self,
        cpu: usize,
        processor: &mut Processor,
        pending: Option<Pending>,
    ) {
        let _ = pending;
        self.disturb(cpu);
        self.diaries[cpu].enters(processor.now_ps);
        if self.costs.flags > 0 {
            // The flag is cleared, and a fence sees that it is.
            self.store(cpu, processor, self.flag(cpu));
            self.drain(cpu, processor);
            processor.now_ps += self.costs.fence_ps;
        }
        processor.now_ps += self.costs.entry_ps;
    }

    pub(crate) fn leave_handler(&mut self, cpu: usize, processor: &mut Processor) {
        processor.now_ps += self.costs.exit_ps;
        self.diaries[cpu].leaves(processor.now_ps);
    }
}
