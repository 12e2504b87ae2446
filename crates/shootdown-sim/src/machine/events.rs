//! What each event does to the state: the one place where the two models part.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use shootdown::sim::{Operation, Plain};
use shootdown::{
    CpuId, IpiRefused, LocalFlush,
    tags::{Asid, TagEntries},
    watch::TraceEvent,
};

use crate::explore::LoadStep;
use crate::machine::deeds::Deed;
use crate::machine::{FailureKind, Model, Pending, State, Status, StealTime};
use crate::walkthrough::Sort;

impl State {
    /// Who goes on, seen from the run loop.
    pub(crate) fn pick(&mut self) -> Option<usize> {
        match &mut self.model {
            Model::Timed(timed) => timed.pick(&mut self.processors),
            Model::Explore(explore) => explore.pick(&self.processors, self.running),
        }
    }

    /// Counts an event; tells whether somebody else goes on now.
    pub(crate) fn gives_way(&mut self) -> bool {
        self.events += 1;
        match &mut self.model {
            Model::Timed(timed) => timed.gives_way(&self.processors, self.running),
            Model::Explore(_) => self.explore_event(),
        }
    }

    /// Whether the running CPU takes an interrupt now.
    pub(crate) fn interrupt_due(&mut self) -> bool {
        let running = self.running;
        let cpu = &mut self.processors[running];
        if !cpu.interrupts_on || cpu.in_handler {
            return false;
        }
        match (&mut self.model, &mut cpu.pending) {
            (_, None) => false,
            (Model::Timed(timed), Some(pending)) => {
                let pending = *pending;
                timed.is_there(running, cpu, pending)
            }
            (Model::Explore(explore), Some(pending)) => {
                cpu.status != Status::Running || explore.interrupt_arrives(pending)
            }
        }
    }

    /// The running CPU does nothing for at most `time_ps`, and less if its interrupt comes in between.
    pub(crate) fn plan_within(&mut self, time_ps: u64) {
        let running = self.running;
        let processors = &self.processors;
        if let Model::Timed(timed) = &mut self.model {
            timed.plan_within(&processors[running], running, time_ps);
        }
    }

    pub(crate) fn enter_handler(&mut self) {
        let running = self.running;
        let cpu = &mut self.processors[running];
        let pending = cpu.pending.take();
        self.hear(Sort::Interrupt, || "takes its interrupt".to_owned());
        self.record(|recorder, cpu, now| recorder.taken(cpu, now));
        let cpu = &mut self.processors[running];
        cpu.interrupts_on = false;
        cpu.in_handler = true;
        match &mut self.model {
            Model::Timed(timed) => timed.enter_handler(running, cpu, pending),
            Model::Explore(explore) => explore.enter_handler(running),
        }
    }

    pub(crate) fn leave_handler(&mut self) {
        let running = self.running;
        let cpu = &mut self.processors[running];
        cpu.interrupts_on = true;
        cpu.in_handler = false;
        if let Model::Timed(timed) = &mut self.model {
            timed.leave_handler(running, cpu);
        }
        self.hear(Sort::Interrupt, || "returns from it".to_owned());
        self.record(|recorder, cpu, now| recorder.returned(cpu, now));
    }

    pub(crate) fn charge_access(&mut self, cell: &AtomicU64, operation: Operation) {
        let running = self.running;
        match &mut self.model {
            Model::Timed(timed) => {
                let how = (operation.writes(), operation.is_read_modify_write());
                let address = cell.as_ptr().addr();
                timed.access(&mut self.processors, running, address, how);
                timed.resume_spinners(&mut self.processors);
            }
            Model::Explore(explore) => {
                explore.approach(cell, self.processors[running].in_handler);
                self.insist_mapped();
            }
        }
    }

    pub(crate) fn charge_plain(&mut self, address: usize, access: Plain) {
        self.insist_mapped();
        let running = self.running;
        if let Model::Timed(timed) = &mut self.model {
            let how = (access == Plain::Write, false);
            timed.access(&mut self.processors, running, address, how);
            timed.resume_spinners(&mut self.processors);
        }
    }

    /// The running CPU accesses the kernel's memory (exploration).
    #[inline]
    fn insist_mapped(&mut self) {
        let running = self.running;
        if self
            .explore()
            .is_some_and(|explore| !explore.maps_kernel(running))
        {
            let story = "accesses memory of the kernel, which its root does not map".to_owned();
            self.fail(FailureKind::Unmapped, story);
        }
    }

    pub(crate) fn charge_fence(&mut self) {
        let running = self.running;
        if let Model::Timed(timed) = &mut self.model {
            timed.fence(running, &mut self.processors[running]);
        }
    }

    /// Tells whether that took time.
    pub(crate) fn charge_clock(&mut self) -> bool {
        let running = self.running;
        match &mut self.model {
            Model::Timed(timed) => timed.read_clock(running, &mut self.processors[running]),
            Model::Explore(_) => return false,
        }
        true
    }

    /// Tells whether the CPU is set aside until there is something for it to see.
    pub(crate) fn relax(&mut self) -> bool {
        let running = self.running;
        match &mut self.model {
            Model::Timed(timed) => return timed.relax(running, &mut self.processors[running]),
            Model::Explore(explore) => explore.relax(running),
        }
        false
    }

    pub(crate) fn prefetch(&mut self, address: usize) {
        let running = self.running;
        if let Model::Timed(timed) = &mut self.model {
            timed.prefetch(running, &mut self.processors[running], address);
            timed.resume_spinners(&mut self.processors);
        }
    }

    pub(crate) fn flush(&mut self, operation: LocalFlush) {
        self.count(Deed::Flush(operation), Deed::pages(operation));
        let running = self.running;
        match &mut self.model {
            Model::Timed(timed) => timed.flush(running, &mut self.processors[running], operation),
            Model::Explore(explore) => explore.flush(running, operation),
        }
        self.attach();
    }

    /// The running CPU begins to load a root; in exploration these steps are left of it.
    pub(crate) fn begin_load(&mut self, asid: Asid, entries: TagEntries) -> &'static [LoadStep] {
        self.count(Deed::Load(entries), usize::from(asid.as_u16()));
        let running = self.running;
        match &mut self.model {
            Model::Timed(timed) => {
                timed.load_root(running, &mut self.processors[running], asid, entries);
                self.attach();
                &[]
            }
            Model::Explore(explore) => explore.load_steps(running, asid, entries),
        }
    }

    /// The running CPU takes one of them (exploration).
    pub(crate) fn take_load_step(&mut self, root: u64, asid: Asid, step: LoadStep, is_last: bool) {
        let running = self.running;
        if let Some(explore) = self.explore() {
            explore.take_load_step(running, (root, asid), step);
            explore.hardware.set_midway(running, !is_last);
        }
        if !is_last {
            self.tell(|| format!("does {step:?}, a step of that load"));
        }
        self.attach();
    }

    /// The running CPU interrupts others, as far as its controller takes the interrupts.
    pub(crate) fn send_to(
        &mut self,
        targets: impl Iterator<Item = CpuId>,
    ) -> Result<(), IpiRefused> {
        let running = self.running;
        let Model::Explore(explore) = &mut self.model else {
            let numbers = targets.map(CpuId::index);
            self.send(numbers);
            return Ok(());
        };
        let targets: Vec<CpuId> = targets.collect();
        let is_own = targets.contains(&self.numbers[running]);
        let taken = match explore.refuses_self() && is_own {
            true => Some(0),
            false => explore.refuses(running, targets.len()),
        };
        let accepted = &targets[..taken.unwrap_or(targets.len())];
        let accepted: Vec<usize> = accepted.iter().map(|cpu| self.index_of(*cpu)).collect();
        for target in &accepted {
            self.count(Deed::Interrupt, *target);
        }
        self.send(accepted.into_iter());
        match taken {
            Some(taken) => {
                self.tell(|| format!("its controller refuses after {taken} of {targets:?}"));
                if is_own {
                    // The timer's next tick looks.
                    self.send_unheard(std::iter::once(running));
                }
                Err(IpiRefused)
            }
            None => Ok(()),
        }
    }

    /// The running CPU interrupts others. An interrupt that its target has not taken yet absorbs a new one.
    fn send(&mut self, targets: impl Iterator<Item = usize>) {
        if self.recorder.is_none() {
            return self.send_unheard(targets);
        }
        let targets: Vec<usize> = targets.collect();
        for target in &targets {
            self.hear(Sort::Interrupt, || format!("interrupts cpu{target}"));
            self.record(|recorder, cpu, now| recorder.sent(cpu, now, *target));
        }
        self.send_unheard(targets.into_iter());
    }

    fn send_unheard(&mut self, targets: impl Iterator<Item = usize>) {
        let running = self.running;
        let mut lost = Vec::new();
        match &mut self.model {
            Model::Timed(timed) => {
                timed.send(&mut self.processors, running, targets);
                timed.resume_spinners(&mut self.processors);
            }
            Model::Explore(explore) => {
                for target in targets {
                    explore.send(running, target);
                    if target != running && explore.loses(target) {
                        lost.push(target);
                        continue;
                    }
                    self.processors[target].pending.get_or_insert(Pending {
                        arrival_ps: 0,
                        initiator: running,
                        delays: 0,
                    });
                }
            }
        }
        if !lost.is_empty() {
            self.tell(|| format!("(the interrupts for virtual CPUs {lost:?} get lost)"));
        }
    }

    /// Interrupts that got lost come after all, once every program is over.
    pub(crate) fn send_lost(&mut self) {
        let running = self.running;
        let Some(explore) = self.explore() else {
            return;
        };
        for target in explore.find_lost() {
            self.processors[target].pending.get_or_insert(Pending {
                arrival_ps: 0,
                initiator: running,
                delays: 0,
            });
        }
    }

    /// The records through which virtual CPUs that do not run can be flushed, where there is such a thing.
    pub(crate) fn steal_times(&mut self) -> Option<Arc<[StealTime]>> {
        self.timed()?.steal_times()
    }

    /// Whether the timed machine flushes some CPUs without an interrupt.
    pub(crate) fn has_timed_back_end(&mut self) -> bool {
        let timed = self.timed();
        timed.is_some_and(|timed| timed.has_broadcasts() || timed.steal_times().is_some())
    }

    /// The running CPU broadcasts and waits for it; false where the timed machine has no such instructions.
    pub(crate) fn broadcast(&mut self) -> bool {
        let running = self.running;
        match &mut self.model {
            Model::Timed(timed) => timed.broadcast(running, &mut self.processors[running]),
            Model::Explore(_) => false,
        }
    }

    /// Whether a hypervisor takes the processor from the running CPU now.
    #[inline]
    pub(crate) fn leaves_processor(&mut self) -> bool {
        let running = self.running;
        match &mut self.model {
            Model::Timed(timed) => timed.leaves(&mut self.processors[running], running),
            Model::Explore(_) => false,
        }
    }

    /// How long the running CPU has been executing since then.
    pub(crate) fn worked_ps(&mut self, since_ps: u64) -> u64 {
        let (running, now_ps) = (self.running, self.me().now_ps);
        match &mut self.model {
            Model::Timed(timed) => timed.ran_ps(running, since_ps, now_ps),
            Model::Explore(_) => now_ps - since_ps,
        }
    }

    pub(crate) fn trace(&mut self, event: TraceEvent) {
        self.record(|recorder, cpu, now| recorder.engine(cpu, now, event));
    }
}
