//! [`Ours`]: the engine, told what a story's algorithm is told.

use shootdown::{AddressSpace, CpuId, FreedTables, Platform};

use crate::machine::{Engine, PLATFORM};
use crate::stories::algorithm::Algorithm;
use crate::stories::stage::{SPACES, Stage};

/// The CPUs of one group.
const CAPACITY: usize = 64;

/// The engine and its view of the spaces.
#[derive(Debug)]
pub(super) struct Ours {
    // Dropped first: a space is the engine's.
    spaces: [AddressSpace<shootdown::Cpus<CAPACITY>>; SPACES],
    engine: Engine<shootdown::Cpus<CAPACITY>>,
}

impl Ours {
    pub(super) fn new(cpus: usize) -> Self {
        let engine = Engine::new(cpus);
        let space = |space| AddressSpace::new(&engine, Stage::root_of(space));
        Self {
            spaces: std::array::from_fn(space),
            engine,
        }
    }
}

impl Algorithm for Ours {
    fn begin(&self, stage: &Stage) {
        let state = PLATFORM.irq_save();
        self.engine.online();
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
        // It has to load by itself what the CPU runs, which drops what that had cached.
        self.switch(stage, None, stage.running());
        stage.load();
        stage.meet();
    }

    fn end(&self, stage: &Stage) {
        self.switch(stage, stage.running(), None);
    }

    fn switch(&self, _: &Stage, from: Option<usize>, to: Option<usize>) {
        let from = from.map(|from| &self.spaces[from]);
        match (from, to) {
            (from, Some(to)) => self.engine.switch_to(from, &self.spaces[to]),
            (Some(from), None) => self.engine.switch_away(from, Stage::kernel_root()),
            (None, None) => {}
        }
    }

    fn change(&self, _: &Stage, space: usize, write: &dyn Fn()) {
        write();
        let space = &self.spaces[space];
        let ticket = self
            .engine
            .submit_flush(space, Stage::range(), FreedTables::No);
        ticket.wait();
    }

    fn interrupt(&self, _: &Stage) {
        self.engine.handle_ipi();
    }

    fn line_name(&self, address: usize) -> Option<String> {
        let mut spaces = self.spaces.iter();
        let of_space = spaces.find_map(|space| space.line_name(address));
        let of_space = of_space.map(str::to_owned);
        of_space.or_else(|| self.engine.full_line_name(address, CpuId::index))
    }
}
