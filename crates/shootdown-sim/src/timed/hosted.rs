//! What a hypervisor changes about the timed machine. Without one nothing does.

use std::sync::Arc;

use crate::machine::{Processor, StealTime};
use crate::timed::Timed;
use crate::timed::hypervisor::{HostCounts, Step};

impl Timed {
    /// The hypervisor flushes virtual CPUs that do not run before they run again, for guests that ask.
    ///
    /// # Panics
    /// Without a hypervisor.
    #[must_use]
    pub fn with_flush_before_entry(mut self) -> Self {
        let hypervisor = self.hypervisor.as_mut();
        hypervisor.expect("shared processors").offers_flush = true;
        self
    }

    /// The steal-time records, where the hypervisor flushes for guests that ask.
    pub(crate) fn steal_times(&self) -> Option<Arc<[StealTime]>> {
        self.hypervisor.as_ref()?.offered()
    }

    /// A flush has taken so many virtual CPUs.
    pub(crate) fn note_taken(&mut self, taken: u64) {
        if let Some(hypervisor) = &mut self.hypervisor {
            hypervisor.counts.taken += taken;
        }
    }

    /// What the hypervisor has done; nothing without one.
    pub fn host_counts(&self) -> HostCounts {
        let hypervisor = self.hypervisor.as_ref();
        hypervisor.map_or(HostCounts::default(), |it| it.counts)
    }

    /// How long of the span that ends now a CPU was on its processor.
    pub fn ran_ps(&mut self, cpu: usize, since_ps: u64, now_ps: u64) -> u64 {
        match &mut self.hypervisor {
            Some(hypervisor) => hypervisor.ran_ps(cpu, since_ps, now_ps),
            None => now_ps - since_ps,
        }
    }

    /// When `cpu` is done with so much work, if nothing else comes; `None` for never.
    pub(super) fn done_ps(&mut self, cpu: usize, now_ps: u64, work_ps: u64) -> Option<u64> {
        let ends_ps = now_ps.checked_add(work_ps)?;
        let hypervisor = self.hypervisor.as_mut();
        Some(hypervisor.map_or(ends_ps, |it| it.done_ps(cpu, now_ps, work_ps)))
    }

    /// An instruction of a CPU is complete, and its turn over: it goes on in the next one. Tells whether that is so.
    #[inline]
    pub(crate) fn leaves(&mut self, processor: &mut Processor, cpu: usize) -> bool {
        let Some(hypervisor) = &mut self.hypervisor else {
            return false;
        };
        let from_ps = hypervisor.settle(cpu, processor.now_ps);
        let leaves = from_ps != processor.now_ps;
        if leaves {
            processor.now_ps = from_ps;
            self.stays(processor, cpu);
        }
        leaves
    }

    /// Whether the hypervisor acts before a CPU that is within an instruction; that CPU gives way then, and ends it.
    #[inline]
    pub(super) fn host_precedes(&self, now_ps: u64) -> bool {
        let hypervisor = self.hypervisor.as_ref();
        hypervisor.is_some_and(|it| it.acts_by(now_ps))
    }

    /// `cpu` gives way within an instruction.
    pub(super) fn pauses(&mut self, cpu: usize) {
        if let Some(hypervisor) = &mut self.hypervisor {
            hypervisor.is_within[cpu] = true;
        }
    }

    /// Has the hypervisor do what it does by then.
    pub(super) fn host_until(&mut self, time_ps: u64) {
        while self
            .hypervisor
            .as_ref()
            .is_some_and(|it| it.acts_by(time_ps))
        {
            self.host_step();
        }
    }

    /// When a CPU that has something to do at `time_ps` can do it.
    pub(super) fn runs_from(&mut self, cpu: usize, time_ps: u64) -> u64 {
        let Some(hypervisor) = &mut self.hypervisor else {
            return time_ps;
        };
        match std::mem::take(&mut hypervisor.is_within[cpu]) {
            true => time_ps,
            false => hypervisor.runs_from(cpu, time_ps),
        }
    }

    /// The byte is taken, and translations are dropped, while the virtual CPU executes nothing.
    fn host_step(&mut self) {
        let (costs, lines) = (&self.costs, &mut self.lines);
        let Some(hypervisor) = &mut self.hypervisor else {
            return;
        };
        let Some((time_ps, cpu, step)) = hypervisor.take_step() else {
            return;
        };
        let there_ps = lines.access(costs, cpu, hypervisor.record_of(cpu), true, time_ps);
        match step {
            Step::Marks(_) => hypervisor.mark(cpu),
            Step::Loads(number) => {
                let mut enters_ps = there_ps + costs.locked_ps + costs.hosting.entry_ps;
                if hypervisor.take_byte(cpu) {
                    self.tlbs[cpu].drop_all();
                    enters_ps += costs.flush_all_ps;
                }
                hypervisor.put_off(cpu, number, enters_ps);
            }
        }
    }
}
