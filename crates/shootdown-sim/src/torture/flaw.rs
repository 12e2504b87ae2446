//! [`Flaw`]: a platform that does not do what the engine tells it. The torture has to notice each.

use std::rc::Rc;

use shootdown::{
    FlushRange, FreedTables, LocalFlush,
    tags::{Asid, TagEntries},
};

use crate::explore::{Chooser, Hardware, Tables, Walk, Weak};
use crate::kernel::{Adversary, KERNEL_REGION, PAGES_PER_TABLE, PageFlush, WINDOW_REGION};
use crate::machine::FailureKind;

/// What a platform leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A flush of pages keeps the last one.
    OnePageKept,
    /// A flush of pages keeps the tables that lead there, although some were freed.
    TablesKept,
    /// A flush of kernel pages keeps them, whether named or all.
    KernelKept,
    /// A flush of windows keeps them.
    WindowsKept,
    /// A flush of a space does nothing.
    SpaceKept,
    /// A flush of everything does nothing.
    AllKept,
    /// A root that is loaded without a tag drops nothing.
    LoadKeeps,
    /// A tag that is to be dropped keeps what it has.
    TagKept,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::OnePageKept,
        Self::TablesKept,
        Self::KernelKept,
        Self::WindowsKept,
        Self::SpaceKept,
        Self::AllKept,
        Self::LoadKeeps,
        Self::TagKept,
    ];

    /// What is left of a flush.
    fn flush(self, operation: LocalFlush) -> Option<LocalFlush> {
        let LocalFlush::Pages(range, freed) = operation else {
            let is_kept = match operation {
                LocalFlush::Space => self == Self::SpaceKept,
                _ => matches!(self, Self::AllKept | Self::KernelKept),
            };
            return (!is_kept).then_some(operation);
        };
        let region = (range.start() / range.page_size().bytes()) / PAGES_PER_TABLE;
        match self {
            Self::OnePageKept => {
                let end = range.end() - range.page_size().bytes();
                let range = FlushRange::new(range.start(), end, range.page_size());
                Some(LocalFlush::Pages(range, freed))
            }
            // With `PageFlush::LeavesOnly`.
            Self::TablesKept => Some(LocalFlush::Pages(range, FreedTables::No)),
            Self::KernelKept if region == KERNEL_REGION => None,
            Self::WindowsKept if region == WINDOW_REGION => None,
            _ => Some(operation),
        }
    }
}

/// The TLBs of a platform, with a flaw or none.
#[derive(Debug)]
pub(super) struct Flawed {
    adversary: Adversary,
    flaw: Option<Flaw>,
}

impl Flawed {
    pub(super) fn new(adversary: Adversary, flaw: Option<Flaw>) -> Self {
        if flaw == Some(Flaw::TablesKept) {
            adversary.0.set_page_flush(PageFlush::LeavesOnly);
        }
        Self { adversary, flaw }
    }
}

impl Hardware for Flawed {
    fn flush(&mut self, cpu: usize, operation: LocalFlush, now: &Walk) {
        let left = match self.flaw {
            Some(flaw) => flaw.flush(operation),
            None => Some(operation),
        };
        if let Some(operation) = left {
            self.adversary.flush(cpu, operation, now);
        }
    }

    fn load_root(&mut self, cpu: usize, root: u64, asid: Asid, entries: TagEntries) {
        let entries = match self.flaw {
            Some(Flaw::LoadKeeps) if asid == Asid::UNTAGGED => TagEntries::Keep,
            Some(Flaw::TagKept) if asid != Asid::UNTAGGED => TagEntries::Keep,
            _ => entries,
        };
        self.adversary.load_root(cpu, root, asid, entries);
    }

    fn tables(&self) -> Option<Rc<dyn Tables>> {
        self.adversary.tables()
    }

    fn last_act(&mut self) -> Option<String> {
        self.adversary.last_act()
    }

    fn at_event(
        &mut self,
        memory: &mut Weak,
        chooser: &mut Chooser,
    ) -> Result<(), (FailureKind, String)> {
        self.adversary.at_event(memory, chooser)
    }
}
