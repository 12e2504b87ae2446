//! [`Tlb`]: an adversary that obeys nothing but the architecture.
//!
//! At any event it may cache the translation of any page that its loaded root reaches, cache an entry of the root
//! table (a paging-structure cache), walk through such an entry instead of reading it again, keep
//! whatever it likes and forget whatever it likes. It drops what INVLPG, a root load or a full flush name,
//! and what a fault on an address drops (SDM vol. 3A, "Operations that Invalidate TLBs and Paging-Structure Caches").

use std::rc::Rc;

use shootdown::{LocalFlush, Root};

use crate::explore::{Chooser, Hardware, Question, Walk, Weak};
use crate::mm::{KERNEL_REGION, PAGES, PAGES_PER_TABLE, Pte, REGIONS, SharedHardware};
use crate::oracle::Breach;

/// A cached translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// Of which page.
    pub page: usize,
    /// To which frame.
    pub frame: u16,
    /// Whether it allows stores.
    pub writable: bool,
}

impl Leaf {
    fn is_global(&self) -> bool {
        self.page / PAGES_PER_TABLE == KERNEL_REGION
    }
}

/// A cached entry of the root table.
#[derive(Clone, Debug)]
struct Structure {
    region: usize,
    table: u16,
    life: u32,
    /// What the walk knew that read it.
    walk: Walk,
}

/// What one CPU has cached.
#[derive(Clone, Debug)]
pub struct Tlb {
    root: u16,
    /// Which life of that frame was loaded; 0 if it was no table then.
    root_life: u32,
    leaves: Vec<Leaf>,
    structures: Vec<Structure>,
}

impl Tlb {
    /// Nothing cached; `root_life` is from the [`Book`](crate::oracle::Book).
    pub fn new(root: u16, root_life: u32) -> Self {
        Self {
            root,
            root_life,
            leaves: Vec::new(),
            structures: Vec::new(),
        }
    }

    /// The cached translations.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// Whether a walk from here could still go through this table.
    pub fn reaches_table(&self, table: u16) -> bool {
        self.root == table || self.structures.iter().any(|entry| entry.table == table)
    }

    /// Where among the leaves a page's translation is, if it is cached.
    fn leaf(&self, page: usize) -> Option<usize> {
        self.leaves.iter().position(|leaf| leaf.page == page)
    }

    fn structure(&self, region: usize) -> Option<&Structure> {
        self.structures.iter().find(|entry| entry.region == region)
    }

    fn load_root(&mut self, root: u16, root_life: u32) {
        self.root = root;
        self.root_life = root_life;
        self.drop_space();
    }

    fn drop_space(&mut self) {
        self.leaves.retain(Leaf::is_global);
        self.structures.clear();
    }

    fn drop_page(&mut self, page: usize) {
        self.leaves.retain(|leaf| leaf.page != page);
        self.structures.clear();
    }
}

impl SharedHardware {
    /// The translation that an access by `cpu` uses, if there is any: a cached one or that of a fresh walk.
    ///
    /// # Errors
    /// When the walk goes where it must not.
    pub fn translate(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        page: usize,
    ) -> Result<Option<Leaf>, Breach> {
        let cached = self.tlbs.borrow()[cpu].leaf(page);
        if let Some(index) = cached {
            if chooser.choose(Question::Tlb, 2) == 0 {
                return Ok(Some(self.tlbs.borrow()[cpu].leaves[index]));
            }
            self.tlbs.borrow_mut()[cpu].leaves.swap_remove(index);
        }
        let found = self.walk(memory, chooser, cpu, page)?;
        if let Some(leaf) = found {
            self.tlbs.borrow_mut()[cpu].leaves.push(leaf);
        }
        Ok(found)
    }

    /// What a fault on `page` drops.
    pub fn fault(&self, cpu: usize, page: usize) {
        self.tlbs.borrow_mut()[cpu].drop_page(page);
    }

    fn walk(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        page: usize,
    ) -> Result<Option<Leaf>, Breach> {
        let Some(structure) = self.structure(memory, chooser, cpu, page / PAGES_PER_TABLE)? else {
            return Ok(None);
        };
        let mut walk = structure.walk;
        let index = page % PAGES_PER_TABLE;
        let pte = self.read(memory, chooser, &mut walk, structure.table, index);
        Ok(pte.frame().map(|frame| Leaf {
            page,
            frame,
            writable: pte.is_writable(),
        }))
    }

    /// The entry of the root table for a region: a cached one, or one read now.
    fn structure(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        region: usize,
    ) -> Result<Option<Structure>, Breach> {
        let cached = self.tlbs.borrow()[cpu].structure(region).cloned();
        if let Some(cached) = cached
            && chooser.choose(Question::Tlb, 2) == 0
        {
            self.book.borrow().check_table(cached.table, cached.life)?;
            return Ok(Some(cached));
        }
        let root = self.check_root(cpu)?;
        let mut walk = memory.walk(cpu);
        let pte = self.read(memory, chooser, &mut walk, root, region);
        let Some(table) = pte.frame() else {
            return Ok(None);
        };
        let life = self.book.borrow().life_of_table(table)?;
        Ok(Some(Structure {
            region,
            table,
            life,
            walk,
        }))
    }

    fn check_root(&self, cpu: usize) -> Result<u16, Breach> {
        let tlb = &self.tlbs.borrow()[cpu];
        self.book.borrow().check_table(tlb.root, tlb.root_life)?;
        Ok(tlb.root)
    }

    fn read(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        walk: &mut Walk,
        table: u16,
        index: usize,
    ) -> Pte {
        let cell = self.physical.entry(table, index).as_core();
        let visible = memory.walk_visible(walk, cell);
        let age = chooser.choose(Question::Value, visible);
        Pte(memory.walk_step(walk, cell, age))
    }

    /// Acts of its own accord: see [`Act`].
    fn act(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        act: Act,
    ) -> Result<(), Breach> {
        match act {
            Act::Cache(page) => {
                let known = self.tlbs.borrow()[cpu].leaf(page).is_some();
                if !known && let Some(leaf) = self.walk(memory, chooser, cpu, page)? {
                    self.tlbs.borrow_mut()[cpu].leaves.push(leaf);
                }
            }
            Act::CacheStructure(region) => {
                let known = self.tlbs.borrow()[cpu].structure(region).is_some();
                if !known && let Some(entry) = self.structure(memory, chooser, cpu, region)? {
                    self.tlbs.borrow_mut()[cpu].structures.push(entry);
                }
            }
            Act::Evict => {
                let tlb = &mut self.tlbs.borrow_mut()[cpu];
                if !tlb.leaves.is_empty() {
                    tlb.leaves.remove(0);
                }
            }
        }
        Ok(())
    }
}

/// What a TLB may do by itself.
#[derive(Clone, Copy, Debug)]
enum Act {
    Cache(usize),
    CacheStructure(usize),
    Evict,
}

impl Act {
    const COUNT: usize = PAGES + REGIONS + 1;

    fn from_number(number: usize) -> Self {
        match number {
            0..PAGES => Self::Cache(number),
            PAGES.. if number < PAGES + REGIONS => Self::CacheStructure(number - PAGES),
            _ => Self::Evict,
        }
    }
}

/// The TLBs of all CPUs, as the machine sees them.
#[derive(Debug)]
pub struct Adversary(pub Rc<SharedHardware>);

impl Hardware for Adversary {
    fn flush(&mut self, cpu: usize, operation: LocalFlush) {
        let tlb = &mut self.0.tlbs.borrow_mut()[cpu];
        match operation {
            LocalFlush::Pages(range) => range
                .iter_pages()
                .for_each(|address| tlb.drop_page(super::world::page_at(address))),
            LocalFlush::Space => tlb.drop_space(),
            LocalFlush::All => {
                tlb.leaves.clear();
                tlb.structures.clear();
            }
        }
    }

    fn load_root(&mut self, cpu: usize, root: Root) {
        let frame = root.0 as u16;
        let life = self.0.book.borrow().life_of_table(frame).unwrap_or(0);
        self.0.tlbs.borrow_mut()[cpu].load_root(frame, life);
    }

    fn at_event(&mut self, memory: &mut Weak, chooser: &mut Chooser) -> Result<(), Breach> {
        let cpus = self.0.tlbs.borrow().len();
        let Some(number) = chooser
            .choose(Question::Tlb, 1 + cpus * Act::COUNT)
            .checked_sub(1)
        else {
            return Ok(());
        };
        let (cpu, act) = (number / Act::COUNT, Act::from_number(number % Act::COUNT));
        self.0
            .act(memory, chooser, cpu, act)
            .map_err(|(kind, story)| (kind, format!("the TLB of cpu{cpu}: {story}")))
    }
}
