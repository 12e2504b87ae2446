//! [`Adversary`]: TLBs that obey nothing but the architecture.
//!
//! At any event a TLB may cache the translation of any page that its loaded root reaches, cache an entry of the root
//! table (a paging-structure cache), walk through such an entry instead of reading it again, keep
//! whatever it likes and forget whatever it likes. What it caches belongs to the loaded tag; what
//! belongs to others it may keep for ever.

use std::rc::Rc;

use shootdown::{
    LocalFlush,
    tags::{Asid, TagEntries},
};

use crate::explore::{Chooser, Hardware, Question, Tables, Walk, Weak};
use crate::kernel::device::DeviceAct;
use crate::kernel::guest::GuestAct;
use crate::kernel::layout::{KERNEL_REGION, PAGES_PER_TABLE};
use crate::kernel::physical::{Pte, SharedHardware};
use crate::kernel::sightings::Sight;
use crate::kernel::tlb::{Act, Leaf, Structure};
use crate::oracle::Breach;
use crate::walkthrough::{Fact, Subject};

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
        let index = page % PAGES_PER_TABLE;
        if structure.is_block {
            return Ok(Some(Leaf {
                page,
                frame: structure.table + index as u16,
                writable: true,
                is_block: true,
            }));
        }
        let mut walk = structure.walk;
        let pte = self.read(memory, chooser, &mut walk, structure.table, index);
        Ok(pte.frame().map(|frame| Leaf {
            page,
            frame,
            writable: pte.is_writable(),
            is_block: false,
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
        let life = match pte.is_block() {
            true => 0,
            false => self.book.borrow().life_of_table(table)?,
        };
        Ok(Some(Structure {
            region,
            table,
            life,
            walk,
            is_block: pte.is_block(),
        }))
    }

    fn check_root(&self, cpu: usize) -> Result<u16, Breach> {
        let (root, life) = self.tlbs.borrow()[cpu].root();
        self.book.borrow().check_table(root, life)?;
        Ok(root)
    }

    pub(super) fn read(
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

    /// Lets the TLB of a CPU act of its own accord, if one shall.
    fn act_as_told(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        act: Option<(usize, Act)>,
    ) -> Result<(), Breach> {
        let Some((cpu, act)) = act.filter(|(cpu, _)| self.tlbs.borrow()[*cpu].runs) else {
            return Ok(());
        };
        self.last_act.set(Some((cpu, act)));
        if self.tlbs.borrow()[cpu].is_midway {
            self.saw(Sight::WalkedMidway);
        }
        self.act(memory, chooser, cpu, act)
            .map_err(|(kind, story)| (kind, format!("the TLB of cpu{cpu}: {story}")))
    }

    /// What a TLB has just done by itself, in words.
    fn last_act(&self) -> Option<String> {
        let (cpu, act) = self.last_act.take()?;
        let tlb = &self.tlbs.borrow()[cpu];
        let what = match act {
            Act::Cache(page) => format!("page {page} at frame {}", tlb.leaf(page)?.frame),
            Act::CacheStructure(region) => {
                let table = tlb.structure(region)?.table;
                format!("entry {region} of its root, which leads to table {table}")
            }
            Act::Evict => return None,
        };
        Some(format!("(the TLB of cpu{cpu} has cached {what})"))
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
                if !known
                    && let Some(entry) = self.structure(memory, chooser, cpu, region)?
                    && !entry.is_block
                {
                    self.tlbs.borrow_mut()[cpu].cache_structure(entry);
                }
            }
            Act::Evict => self.tlbs.borrow_mut()[cpu].evict(),
        }
        Ok(())
    }
}

/// The TLBs of all CPUs, as the machine sees them.
#[derive(Debug)]
pub struct Adversary(pub Rc<SharedHardware>);

impl Hardware for Adversary {
    fn flush(&mut self, cpu: usize, operation: LocalFlush, now: &Walk) {
        self.0.tlbs.borrow_mut()[cpu].flush(operation, now);
    }

    fn flush_tag(&mut self, cpu: usize, asid: Asid, operation: LocalFlush, now: &Walk) {
        self.0.tlbs.borrow_mut()[cpu].flush_tag(asid, operation, now);
    }

    fn load_root(&mut self, cpu: usize, root: u64, asid: Asid, entries: TagEntries) {
        let frame = root as u16;
        let life = self.0.book.borrow().life_of_table(frame).unwrap_or(0);
        self.0.tlbs.borrow_mut()[cpu].load_root(frame, life, asid, entries);
    }

    fn maps_kernel(&self, root: u64) -> bool {
        let entry = (self.0.physical).newest(root as u16, KERNEL_REGION);
        entry != Pte::EMPTY
    }

    fn set_midway(&mut self, cpu: usize, is_midway: bool) {
        self.0.tlbs.borrow_mut()[cpu].is_midway = is_midway;
    }

    fn set_runs(&mut self, cpu: usize, runs: bool) {
        self.0.tlbs.borrow_mut()[cpu].runs = runs;
    }

    fn tables(&self) -> Option<Rc<dyn Tables>> {
        Some(self.0.clone())
    }

    fn facts(&self) -> Vec<Fact> {
        self.0.facts()
    }

    fn subject(&self) -> Option<Subject> {
        self.0.book.borrow().subject()
    }

    fn last_act(&mut self) -> Option<String> {
        self.0.last_act()
    }

    fn at_event(&mut self, memory: &mut Weak, chooser: &mut Chooser) -> Result<(), Breach> {
        let cpus = self.0.tlbs.borrow().len();
        let of_hosts = cpus * Act::COUNT;
        let of_guests = self.0.guests.borrow().len() * GuestAct::COUNT;
        let of_devices = self.0.devices.borrow().len() * DeviceAct::COUNT;
        let answer = chooser.choose(Question::Tlb, 1 + of_hosts + of_guests + of_devices);
        if let Some(number) = answer.checked_sub(1 + of_hosts + of_guests) {
            return self.0.act_on_device_as_told(memory, chooser, number);
        }
        if let Some(number) = answer.checked_sub(1 + of_hosts) {
            return self.0.act_in_guest_as_told(memory, chooser, number);
        }
        let number = answer.checked_sub(1);
        let act = number.map(|number| (number / Act::COUNT, Act::from_number(number % Act::COUNT)));
        self.0.act_as_told(memory, chooser, act)
    }
}

/// The TLBs of all CPUs, which cache by themselves only translations of a few pages and what leads there: few enough for all schedules to
/// be tried.
#[derive(Debug)]
pub struct Focused {
    adversary: Adversary,
    /// What may be done, and on which CPU.
    acts: Vec<(usize, Act)>,
}

impl Focused {
    /// TLBs with an eye on these pages.
    pub fn new(hardware: Rc<SharedHardware>, pages: &[usize]) -> Self {
        let cpus = hardware.tlbs.borrow().len();
        let of_page = |page: &usize| {
            let region = page / PAGES_PER_TABLE;
            [Act::Cache(*page), Act::CacheStructure(region)]
        };
        let acts: Vec<Act> = pages.iter().flat_map(of_page).collect();
        let acts = (0..cpus).flat_map(|cpu| acts.iter().map(move |act| (cpu, *act)));
        Self {
            acts: acts.collect(),
            adversary: Adversary(hardware),
        }
    }
}

impl Hardware for Focused {
    fn flush(&mut self, cpu: usize, operation: LocalFlush, now: &Walk) {
        self.adversary.flush(cpu, operation, now);
    }

    fn flush_tag(&mut self, cpu: usize, asid: Asid, operation: LocalFlush, now: &Walk) {
        self.adversary.flush_tag(cpu, asid, operation, now);
    }

    fn load_root(&mut self, cpu: usize, root: u64, asid: Asid, entries: TagEntries) {
        self.adversary.load_root(cpu, root, asid, entries);
    }

    fn maps_kernel(&self, root: u64) -> bool {
        self.adversary.maps_kernel(root)
    }

    fn set_midway(&mut self, cpu: usize, is_midway: bool) {
        self.adversary.set_midway(cpu, is_midway);
    }

    fn set_runs(&mut self, cpu: usize, runs: bool) {
        self.adversary.set_runs(cpu, runs);
    }

    fn tables(&self) -> Option<Rc<dyn Tables>> {
        self.adversary.tables()
    }

    fn facts(&self) -> Vec<Fact> {
        self.adversary.facts()
    }

    fn subject(&self) -> Option<Subject> {
        self.adversary.subject()
    }

    fn last_act(&mut self) -> Option<String> {
        self.adversary.last_act()
    }

    fn at_event(&mut self, memory: &mut Weak, chooser: &mut Chooser) -> Result<(), Breach> {
        let answer = chooser.choose(Question::Tlb, 1 + self.acts.len());
        let act = answer.checked_sub(1).map(|number| self.acts[number]);
        self.adversary.0.act_as_told(memory, chooser, act)
    }
}
