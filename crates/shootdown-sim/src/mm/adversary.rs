//! [`Adversary`]: TLBs that obey nothing but the architecture.
//!
//! At any event a TLB may cache the translation of any page that its loaded root reaches, cache an entry of the root
//! table (a paging-structure cache), walk through such an entry instead of reading it again, keep
//! whatever it likes and forget whatever it likes. What it caches belongs to the loaded tag; what
//! belongs to others it may keep for ever.

use std::rc::Rc;

use shootdown::{Asid, LocalFlush, Root, TagEntries};

use crate::explore::{Chooser, Hardware, Question, Tables, Walk, Weak};
use crate::mm::tlb::{Leaf, Structure};
use crate::mm::{PAGES, PAGES_PER_TABLE, Pte, REGIONS, SharedHardware};
use crate::oracle::Breach;

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
        if cached.is_some() {
            if chooser.choose(Question::Tlb, 2) == 0 {
                return Ok(cached);
            }
            self.tlbs.borrow_mut()[cpu].evict_page(page);
        }
        let found = self.walk(memory, chooser, cpu, page)?;
        if let Some(leaf) = found {
            self.tlbs.borrow_mut()[cpu].cache(leaf);
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
        let (root, life) = self.tlbs.borrow()[cpu].root();
        self.book.borrow().check_table(root, life)?;
        Ok(root)
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
                    self.tlbs.borrow_mut()[cpu].cache(leaf);
                }
            }
            Act::CacheStructure(region) => {
                let known = self.tlbs.borrow()[cpu].structure(region).is_some();
                if !known && let Some(entry) = self.structure(memory, chooser, cpu, region)? {
                    self.tlbs.borrow_mut()[cpu].cache_structure(entry);
                }
            }
            Act::Evict => self.tlbs.borrow_mut()[cpu].evict(),
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
        self.0.tlbs.borrow_mut()[cpu].flush(operation);
    }

    fn load_root(&mut self, cpu: usize, root: Root, asid: Asid, entries: TagEntries) {
        let frame = root.0 as u16;
        let life = self.0.book.borrow().life_of_table(frame).unwrap_or(0);
        self.0.tlbs.borrow_mut()[cpu].load_root(frame, life, asid, entries);
    }

    fn tables(&self) -> Option<Rc<dyn Tables>> {
        Some(self.0.clone())
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
