//! [`Algorithm`]: what differs between the ways to play a story; [`Scene`]: what the CPUs do, whatever the way.

use std::fmt;

use shootdown::Platform;

use crate::kernel::Focused;
use crate::machine::{PLATFORM, context};
use crate::stories::stage::Stage;

/// How kernels keep TLBs right. All of it runs on the CPU that calls it.
pub(super) trait Algorithm: fmt::Debug {
    /// Before the first event: a CPU runs this space.
    fn place(&self, _cpu: usize, _space: usize) {}

    /// Before a CPU does anything.
    fn begin(&self, _stage: &Stage) {}

    /// The CPU does nothing more.
    fn end(&self, _stage: &Stage) {}

    /// The CPU goes from the space that it runs to another one, or to none; many algorithms tell nobody.
    fn switch(&self, stage: &Stage, _from: Option<usize>, to: Option<usize>) {
        stage.load_root(to);
    }

    /// Changes the page tables of a space, which `write` does, and has all CPUs forget what was there. Returns when the algorithm
    /// holds that nobody uses it any more.
    fn change(&self, stage: &Stage, space: usize, write: &dyn Fn());

    /// The interrupt that other CPUs send.
    fn interrupt(&self, stage: &Stage);

    /// A hypervisor takes the CPU off its processor for a while.
    fn lose_processor(&self, _stage: &Stage) {
        context().work(1);
    }

    /// What the cache line at an address holds, if that is of interest.
    fn line_name(&self, _address: usize) -> Option<String> {
        None
    }
}

/// The stage, and the algorithm that keeps its TLBs right.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) stage: Stage,
    pub(super) algorithm: Box<dyn Algorithm>,
}

/// What one CPU does in a story.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The space that it runs when the story begins.
    pub(super) starts_in: Option<usize>,
    pub(super) plays: fn(&Scene),
}

impl Part {
    /// A CPU that runs a space when the story begins.
    pub(super) const fn within(space: usize, plays: fn(&Scene)) -> Self {
        Self {
            starts_in: Some(space),
            plays,
        }
    }
}

impl Scene {
    /// Before the first event: the CPUs run what their parts say. Returns their TLBs.
    pub(super) fn place(&self, parts: &[Part], tlbs_obey: bool) -> Box<Focused> {
        let mut tlbs = self.stage.tlbs(tlbs_obey);
        for (cpu, part) in parts.iter().enumerate() {
            if let Some(space) = part.starts_in {
                self.stage.place(&mut tlbs, cpu, space);
                self.algorithm.place(cpu, space);
            }
        }
        tlbs
    }

    /// One CPU's program.
    pub(super) fn play(&self, part: &Part) {
        self.algorithm.begin(&self.stage);
        (part.plays)(self);
        self.algorithm.end(&self.stage);
    }

    /// The CPU runs `to` from here on, or nothing.
    pub(super) fn switch(&self, to: Option<usize>) {
        let from = self.stage.running();
        self.stage.set_running(None);
        if let Some(from) = from {
            context().tell(|| format!("leaves space {}", Stage::number_of(from)));
        }
        self.algorithm.switch(&self.stage, from, to);
        if let Some(to) = to {
            context().tell(|| format!("runs space {}", Stage::number_of(to)));
        }
        self.stage.set_running(to);
    }

    /// Unmaps the page of a space, as the algorithm does it, and frees the frame.
    pub(super) fn unmap(&self, space: usize) {
        let stage = &self.stage;
        let before = stage.mark();
        let write = || stage.empty_entry(space);
        self.algorithm.change(stage, space, &write);
        stage.give_away(space, before);
    }

    /// The program of the space that the CPU runs loads from its page, now and again.
    pub(super) fn load(&self, times: usize) {
        for _ in 0..times {
            self.stage.load();
        }
    }

    /// The CPU takes no interrupt for so many events.
    pub(super) fn keep_interrupts_off(&self, events: u32) {
        let state = PLATFORM.irq_save();
        context().tell(|| "turns its interrupts off".to_owned());
        for _ in 0..events {
            context().work(1);
        }
        context().tell(|| "turns them on".to_owned());
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
    }

    /// A hypervisor takes the CPU off its processor for a while.
    pub(super) fn lose_processor(&self) {
        self.algorithm.lose_processor(&self.stage);
    }
}
