//! How a processor comes to another root: in one instruction, or in several, between which it walks.

use shootdown::{
    LocalFlush,
    tags::{Asid, TagEntries},
};

use crate::explore::{BackEnd, Explore};

/// What loads a root on a machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Loads {
    /// One instruction, which drops what it is to drop as it loads (x86: MOV CR3).
    #[default]
    AtOnce,
    /// An instruction that loads and others that drop, in the order that the platform's contract 4 asks for (Arm, RISC-V, LoongArch).
    InSteps,
}

/// One of the steps of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadStep {
    /// What the new tag holds is dropped.
    Drop,
    /// Root and tag become the new ones.
    Load,
    /// Both at once.
    LoadAndDrop,
}

/// The loads of one machine.
#[derive(Debug)]
pub(super) struct Loading {
    loads: Loads,
    /// The tag that each CPU has loaded.
    tags: Vec<Asid>,
    /// Whether its root maps the kernel's memory.
    maps_kernel: Vec<bool>,
}

impl Loading {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            loads: Loads::AtOnce,
            tags: vec![Asid::UNTAGGED; cpus],
            maps_kernel: vec![true; cpus],
        }
    }
}

impl Explore {
    /// The same with processors that load roots in this way.
    #[must_use]
    pub fn with_loads(mut self, loads: Loads) -> Self {
        self.loading.loads = loads;
        self
    }

    /// The steps in which `cpu` loads a root under `asid`.
    pub(crate) fn load_steps(
        &self,
        cpu: usize,
        asid: Asid,
        entries: TagEntries,
    ) -> &'static [LoadStep] {
        use LoadStep::{Drop, Load, LoadAndDrop};
        let has_tags = self.asid_slots() > 0 || self.back_end() == BackEnd::ByTag;
        let stays_loaded = self.loading.tags[cpu] == asid;
        match (self.loading.loads, entries) {
            (_, TagEntries::Keep) => &[Load],
            (Loads::AtOnce, TagEntries::Drop) => &[LoadAndDrop],
            // There is nothing that names what is to be dropped but to have it loaded.
            (Loads::InSteps, TagEntries::Drop) if !has_tags => &[Load, Drop],
            // What was dropped comes back as long as the former root is walked under the tag.
            (Loads::InSteps, TagEntries::Drop) if stays_loaded => &[Drop, Load, Drop],
            (Loads::InSteps, TagEntries::Drop) => &[Drop, Load],
        }
    }

    /// Whether `cpu` can access the kernel's memory, with all that the engine and its callers lend to others (contract 11).
    #[inline]
    pub(crate) fn maps_kernel(&self, cpu: usize) -> bool {
        self.loading.maps_kernel[cpu]
    }

    pub(crate) fn take_load_step(&mut self, cpu: usize, (root, asid): (u64, Asid), step: LoadStep) {
        let (loads, entries) = match step {
            LoadStep::Drop => (false, TagEntries::Drop),
            LoadStep::Load => (true, TagEntries::Keep),
            LoadStep::LoadAndDrop => (true, TagEntries::Drop),
        };
        if loads {
            self.loading.tags[cpu] = asid;
            self.hardware.load_root(cpu, root, asid, entries);
            self.loading.maps_kernel[cpu] = self.hardware.maps_kernel(root);
        } else {
            let now = self.memory.walk(cpu);
            self.hardware.flush_tag(cpu, asid, LocalFlush::Space, &now);
        }
    }
}
