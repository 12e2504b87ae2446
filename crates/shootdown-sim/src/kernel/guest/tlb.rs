//! [`GuestTlb`]: what one CPU's hardware has cached of guests, under which tag, and what drops it.
//!
//! It uses its entries in guest mode only, those of the loaded tag. What is cached stays when the guest is left, for ever if the hardware likes, until
//! an entry says that the tag is to be dropped. The guest's own flush drops combined translations of the loaded tag here, and nothing
//! that is guest-physical (SDM vol. 3C, "Caching Translation Information").

use std::rc::Rc;

use shootdown::sim::AtomicU64;
use shootdown::tags::{Asid, TagEntries};

use crate::kernel::Leaf;
use crate::kernel::guest::layout::VIRTUAL_PAGES;
use crate::kernel::tlb::Structure;
use crate::walkthrough::{Fact, Key, Value};

/// No CPU has more tags for guests.
const MOST_TAGS: u16 = 12;

/// The page tables of a virtual CPU itself: to which guest-physical page each guest-virtual one leads.
pub(super) type OwnTables = [AtomicU64; VIRTUAL_PAGES];

/// What is loaded in guest mode.
#[derive(Clone, Debug)]
pub(in crate::kernel) struct Running {
    pub(super) root: u16,
    /// Which life of that frame was loaded.
    pub(super) life: u32,
    pub(super) asid: Asid,
    /// Those of the virtual CPU.
    pub(super) tables: Rc<OwnTables>,
}

/// A guest-virtual page, and what it leads to: a guest-physical page, and its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::kernel) struct Combined {
    pub(super) virtual_page: usize,
    pub(super) leaf: Leaf,
}

/// What one CPU has cached of guests, each entry with its tag.
#[derive(Clone, Default, Debug)]
pub(in crate::kernel) struct GuestTlb {
    running: Option<Running>,
    combined: Vec<(Asid, Combined)>,
    leaves: Vec<(Asid, Leaf)>,
    structures: Vec<(Asid, Structure)>,
}

impl GuestTlb {
    pub(super) fn enter(&mut self, running: Running, entries: TagEntries) {
        if entries == TagEntries::Drop {
            let loaded = running.asid;
            self.combined.retain(|(tag, _)| *tag != loaded);
            self.leaves.retain(|(tag, _)| *tag != loaded);
            self.structures.retain(|(tag, _)| *tag != loaded);
        }
        self.running = Some(running);
    }

    pub(super) fn leave(&mut self) {
        self.running = None;
    }

    /// What is loaded, in guest mode.
    pub(in crate::kernel) fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    fn loaded(&self) -> Option<Asid> {
        self.running.as_ref().map(|running| running.asid)
    }

    /// The nested root that is loaded.
    pub(in crate::kernel) fn root(&self) -> Option<u16> {
        self.running.as_ref().map(|running| running.root)
    }

    /// All that it holds, for those who look at it.
    pub(in crate::kernel) fn add_facts(&self, cpu: usize, facts: &mut Vec<Fact>) {
        facts.extend(self.running.iter().map(|running| {
            let value = Value::Tagged(running.root, running.asid.as_u16());
            (Key::GuestRoot(cpu), value)
        }));
        facts.extend(self.combined.iter().map(|(tag, entry)| {
            let key = Key::GuestPage(cpu, entry.virtual_page, tag.as_u16());
            (key, entry.leaf.fact())
        }));
        facts.extend(self.leaves.iter().map(|(tag, leaf)| {
            let key = Key::GuestLeaf(cpu, leaf.page, tag.as_u16());
            (key, leaf.fact())
        }));
        facts.extend(self.structures.iter().map(|(tag, entry)| {
            let key = Key::GuestStructure(cpu, entry.region, tag.as_u16());
            (key, Value::Table(entry.table))
        }));
    }

    /// Whether a walk from here could go through this nested table now.
    pub(in crate::kernel) fn reaches_table(&self, table: u16) -> bool {
        let loaded = self.loaded();
        let mut structures = self.structures.iter();
        self.root() == Some(table)
            || structures.any(|(tag, entry)| Some(*tag) == loaded && entry.table == table)
    }

    /// The combined translations that the guest could use now.
    pub(super) fn combined(&self) -> impl Iterator<Item = Combined> + '_ {
        usable(&self.combined, self.loaded()).copied()
    }

    /// The guest-physical translations that the guest could use now.
    pub(super) fn leaves(&self) -> impl Iterator<Item = Leaf> + '_ {
        usable(&self.leaves, self.loaded()).copied()
    }

    pub(super) fn structure(&self, region: usize) -> Option<&Structure> {
        usable(&self.structures, self.loaded()).find(|entry| entry.region == region)
    }

    pub(super) fn combined_of(&self, virtual_page: usize) -> Option<Combined> {
        self.combined()
            .find(|entry| entry.virtual_page == virtual_page)
    }

    pub(super) fn leaf(&self, page: usize) -> Option<Leaf> {
        self.leaves().find(|leaf| leaf.page == page)
    }

    pub(super) fn cache_combined(&mut self, entry: Combined) {
        self.combined.extend(self.loaded().map(|tag| (tag, entry)));
    }

    pub(super) fn cache_leaf(&mut self, leaf: Leaf) {
        self.leaves.extend(self.loaded().map(|tag| (tag, leaf)));
    }

    pub(super) fn cache_structure(&mut self, entry: Structure) {
        self.structures
            .extend(self.loaded().map(|tag| (tag, entry)));
    }

    /// Forgets the oldest entries, whatever their tag.
    pub(super) fn evict(&mut self) {
        self.combined.drain(..self.combined.len().min(1));
        self.leaves.drain(..self.leaves.len().min(1));
    }

    /// The guest's own flush of a page, or of all: nothing that is guest-physical goes.
    pub(super) fn flush_virtual(&mut self, virtual_page: Option<usize>) {
        let loaded = self.loaded();
        self.combined.retain(|(tag, entry)| {
            Some(*tag) != loaded || virtual_page.is_some_and(|page| page != entry.virtual_page)
        });
    }

    /// The CPU was out of service: what is cached under a tag now is what somebody else used it for.
    pub(in crate::kernel) fn mix_tags(&mut self) {
        let other = |tag: &mut Asid| *tag = Asid::new(tag.as_u16() % MOST_TAGS + 1);
        self.combined.iter_mut().for_each(|(tag, _)| other(tag));
        self.leaves.iter_mut().for_each(|(tag, _)| other(tag));
        self.structures.iter_mut().for_each(|(tag, _)| other(tag));
    }

    /// What a violation of nested tables drops: all that was used for that guest-physical page.
    pub(super) fn drop_nested(&mut self, page: usize) {
        let loaded = self.loaded();
        self.combined
            .retain(|(tag, entry)| Some(*tag) != loaded || entry.leaf.page != page);
        self.leaves
            .retain(|(tag, leaf)| Some(*tag) != loaded || leaf.page != page);
        self.structures.retain(|(tag, _)| Some(*tag) != loaded);
    }
}

fn usable<T>(entries: &[(Asid, T)], loaded: Option<Asid>) -> impl Iterator<Item = &T> {
    let entries = entries.iter().filter(move |(tag, _)| Some(*tag) == loaded);
    entries.map(|(_, entry)| entry)
}
