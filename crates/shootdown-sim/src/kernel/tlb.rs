//! [`Tlb`]: what one CPU's hardware has cached, under which tag, and what each operation drops of it.
//!
//! It drops what INVLPG, a root load or a full flush name, and what a fault on an address drops (SDM vol. 3A,
//! "Operations that Invalidate TLBs and Paging-Structure Caches"), and keeps everything else for ever unless the
//! [`Adversary`](crate::kernel::Adversary) evicts it. Entries of the loaded tag can be used, and global translations;
//! those of other tags wait until their tag is loaded again.

use shootdown::{
    FreedTables, LocalFlush,
    tags::{Asid, TagEntries},
};

use crate::explore::Walk;
use crate::kernel::layout::{KERNEL_REGION, PAGES, PAGES_PER_TABLE, REGIONS, page_at};
use crate::walkthrough::{Fact, Key, Value};

/// A cached translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// Of which page.
    pub page: usize,
    /// To which frame.
    pub frame: u16,
    /// Whether it allows stores.
    pub writable: bool,
    /// Whether it is a piece of a block, all pieces of which are dropped together.
    pub is_block: bool,
}

impl Leaf {
    /// Whether it is dropped with the translation of `page` (x86: INVLPG drops a large page by any of its addresses).
    fn covers(&self, page: usize) -> bool {
        match self.is_block {
            true => self.page / PAGES_PER_TABLE == page / PAGES_PER_TABLE,
            false => self.page == page,
        }
    }

    pub(in crate::kernel) fn fact(&self) -> Value {
        Value::Frame {
            frame: self.frame.into(),
            writable: self.writable,
        }
    }
}

/// A cached entry of the root table. It belongs to a tag, whatever it leads to: only translations are global.
#[derive(Clone, Debug)]
pub(super) struct Structure {
    pub(super) region: usize,
    pub(super) table: u16,
    pub(super) life: u32,
    /// What the walk knew that read it.
    pub(super) walk: Walk,
    /// Whether `table` is no table, but the first frame of a block.
    pub(super) is_block: bool,
}

/// Whether kernel pages are global: used under every tag, and kept when a tag is dropped (x86: CR4.PGE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelPages {
    /// They are.
    Global,
    /// They belong to the tag under which they were cached.
    Tagged,
}

impl KernelPages {
    /// Mostly global, as kernels have it.
    pub(crate) fn of_seed(seed: u64) -> Self {
        match (seed / 2).is_multiple_of(3) {
            true => Self::Tagged,
            false => Self::Global,
        }
    }
}

/// What a flush of single pages drops besides their translations, where no table was freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageFlush {
    /// Whatever leads to pages of the loaded tag (x86).
    Structures,
    /// Nothing (RISC-V: SFENCE.VMA with an address orders leaf entries only).
    LeavesOnly,
}

/// What one CPU has cached.
#[derive(Clone, Debug)]
pub struct Tlb {
    kernel_pages: KernelPages,
    page_flush: PageFlush,
    /// No hypervisor has taken it off its processor: then it does nothing by itself.
    pub(super) runs: bool,
    /// It is between two steps of a load: what can be used is of two roots, and no program runs.
    pub(super) is_midway: bool,
    root: u16,
    /// Which life of that frame was loaded; 0 if it was no table then.
    root_life: u32,
    tag: Asid,
    /// Translations, each with the tag it belongs to, or none if it is global.
    leaves: Vec<(Option<Asid>, Leaf)>,
    structures: Vec<(Asid, Structure)>,
}

impl Tlb {
    /// Nothing cached; `root_life` is from the [`Book`](crate::oracle::Book).
    pub fn new(root: u16, root_life: u32, kernel_pages: KernelPages) -> Self {
        Self {
            kernel_pages,
            page_flush: PageFlush::Structures,
            runs: true,
            is_midway: false,
            root,
            root_life,
            tag: Asid::UNTAGGED,
            leaves: Vec::new(),
            structures: Vec::new(),
        }
    }

    pub(super) fn set_page_flush(&mut self, page_flush: PageFlush) {
        self.page_flush = page_flush;
    }

    /// The loaded root, and which life of its frame was loaded.
    pub fn root(&self) -> (u16, u32) {
        (self.root, self.root_life)
    }

    /// The translations that the CPU could use now: global ones and those of the loaded tag.
    pub fn usable(&self) -> impl Iterator<Item = Leaf> + '_ {
        let leaves = self.leaves.iter();
        let leaves = leaves.filter(move |(tag, _)| self.is_usable(*tag));
        leaves.map(|(_, leaf)| *leaf)
    }

    /// All that it holds, for those who look at it.
    pub(super) fn add_facts(&self, cpu: usize, facts: &mut Vec<Fact>) {
        facts.push((Key::Root(cpu), Value::Tagged(self.root, self.tag.as_u16())));
        facts.extend(self.leaves.iter().map(|(tag, leaf)| {
            let key = Key::Leaf(cpu, leaf.page as u64, tag.map(Asid::as_u16));
            (key, leaf.fact())
        }));
        facts.extend(self.structures.iter().map(|(tag, entry)| {
            let key = Key::Structure(cpu, entry.region, tag.as_u16());
            (key, Value::Table(entry.table))
        }));
    }

    /// Whether a walk from here could still go through this table. Under another tag it could not, before that
    /// tag is loaded again without dropping what it has.
    pub fn reaches_table(&self, table: u16) -> bool {
        let mut structures = self.structures.iter();
        self.root == table
            || structures.any(|(tag, entry)| *tag == self.tag && entry.table == table)
    }

    fn is_usable(&self, tag: Option<Asid>) -> bool {
        tag.is_none_or(|tag| tag == self.tag)
    }

    fn is_global(&self, page: usize) -> bool {
        self.kernel_pages == KernelPages::Global && page / PAGES_PER_TABLE == KERNEL_REGION
    }

    /// The usable translation of a page, if it is cached.
    pub(super) fn leaf(&self, page: usize) -> Option<Leaf> {
        self.usable().find(|leaf| leaf.page == page)
    }

    pub(super) fn structure(&self, region: usize) -> Option<&Structure> {
        let mut structures = self.structures.iter();
        let found = structures.find(|(tag, entry)| *tag == self.tag && entry.region == region);
        found.map(|(_, entry)| entry)
    }

    pub(super) fn cache(&mut self, leaf: Leaf) {
        let tag = (!self.is_global(leaf.page)).then_some(self.tag);
        self.leaves.push((tag, leaf));
    }

    pub(super) fn cache_structure(&mut self, entry: Structure) {
        self.structures.push((self.tag, entry));
    }

    /// Forgets the oldest translation.
    pub(super) fn evict(&mut self) {
        if !self.leaves.is_empty() {
            self.leaves.remove(0);
        }
    }

    /// Forgets the usable translations of a page and nothing else.
    pub(super) fn evict_page(&mut self, page: usize) {
        let loaded = Some(self.tag);
        self.leaves
            .retain(|(tag, leaf)| !leaf.covers(page) || (tag.is_some() && *tag != loaded));
    }

    pub(super) fn load_root(&mut self, root: u16, root_life: u32, tag: Asid, entries: TagEntries) {
        self.root = root;
        self.root_life = root_life;
        self.tag = tag;
        if entries == TagEntries::Drop {
            self.drop_tag();
        }
    }

    pub(super) fn flush(&mut self, operation: LocalFlush, now: &Walk) {
        match operation {
            LocalFlush::Pages(range, freed) => {
                let keeps = self.page_flush == PageFlush::LeavesOnly && freed == FreedTables::No;
                if keeps {
                    self.renew_structures(now);
                }
                for page in range.iter_pages().map(page_at) {
                    match keeps {
                        true => self.evict_page(page),
                        false => self.drop_page(page),
                    }
                }
            }
            LocalFlush::Space => self.drop_tag(),
            LocalFlush::All => {
                self.leaves.clear();
                self.structures.clear();
            }
        }
    }

    /// The same under a tag, which may be loaded or not.
    pub(super) fn flush_tag(&mut self, tag: Asid, operation: LocalFlush, now: &Walk) {
        let loaded = std::mem::replace(&mut self.tag, tag);
        self.flush(operation, now);
        self.tag = loaded;
    }

    /// Walks from here on see at least what `now` does, also those that go on from cached structures.
    fn renew_structures(&mut self, now: &Walk) {
        for (_, entry) in &mut self.structures {
            entry.walk.join(now);
        }
    }

    /// What the loaded tag has; not what is global.
    fn drop_tag(&mut self) {
        let loaded = self.tag;
        self.leaves.retain(|(tag, _)| *tag != Some(loaded));
        self.structures.retain(|(tag, _)| *tag != loaded);
    }

    /// A page of the loaded tag, the same page where it is global, and all that leads to pages of the loaded tag.
    pub(super) fn drop_page(&mut self, page: usize) {
        let loaded = self.tag;
        self.evict_page(page);
        self.structures.retain(|(tag, _)| *tag != loaded);
    }
}

/// What a TLB may do by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Cache(usize),
    CacheStructure(usize),
    Evict,
}

impl Act {
    pub(super) const COUNT: usize = PAGES + REGIONS + 1;

    pub(super) fn from_number(number: usize) -> Self {
        match number {
            0..PAGES => Self::Cache(number),
            PAGES.. if number < PAGES + REGIONS => Self::CacheStructure(number - PAGES),
            _ => Self::Evict,
        }
    }
}
