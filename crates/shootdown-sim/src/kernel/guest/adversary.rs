//! Walks of nested tables, and what a CPU in guest mode does of its own accord.
//!
//! It may cache the combined translation of any guest-virtual page, the guest-physical one of any page that its nested root reaches, an entry of that
//! root; walk through what it has cached; and forget.

use crate::explore::{Chooser, Question, Weak};
use crate::kernel::guest::layout::{GUEST_PAGES, GUEST_REGIONS, VIRTUAL_PAGES};
use crate::kernel::guest::tlb::{Combined, Running};
use crate::kernel::layout::PAGES_PER_TABLE;
use crate::kernel::tlb::Structure;
use crate::kernel::{Leaf, SharedHardware};
use crate::oracle::Breach;

/// What a CPU in guest mode may do by itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernel) enum GuestAct {
    /// Caches where a guest-virtual page leads.
    Combine(usize),
    /// Caches where a guest-physical page leads.
    Cache(usize),
    /// Caches an entry of the nested root.
    CacheStructure(usize),
    /// Forgets something, in guest mode or not.
    Evict,
}

impl GuestAct {
    pub(in crate::kernel) const COUNT: usize = VIRTUAL_PAGES + GUEST_PAGES + GUEST_REGIONS + 1;

    pub(in crate::kernel) fn from_number(number: usize) -> Self {
        const LEAVES: usize = VIRTUAL_PAGES + GUEST_PAGES;
        const ALL: usize = LEAVES + GUEST_REGIONS;
        match number {
            0..VIRTUAL_PAGES => Self::Combine(number),
            VIRTUAL_PAGES..LEAVES => Self::Cache(number - VIRTUAL_PAGES),
            LEAVES..ALL => Self::CacheStructure(number - LEAVES),
            _ => Self::Evict,
        }
    }
}

/// Where a guest-virtual page leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Frame(Combined),
    /// Nowhere in the nested tables: this guest-physical page is missing.
    Missing(usize),
}

impl SharedHardware {
    /// The translation that an access in guest mode on `cpu` uses: a cached one or that of a fresh walk.
    pub(super) fn translate_guest(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        virtual_page: usize,
    ) -> Result<Option<Found>, Breach> {
        let cached = self.guests.borrow()[cpu].combined_of(virtual_page);
        if let Some(cached) = cached {
            if chooser.choose(Question::Tlb, 2) == 0 {
                return Ok(Some(Found::Frame(cached)));
            }
            self.guests.borrow_mut()[cpu].flush_virtual(Some(virtual_page));
        }
        let found = self.walk_guest(memory, chooser, cpu, virtual_page)?;
        if let Some(Found::Frame(entry)) = found {
            self.guests.borrow_mut()[cpu].cache_combined(entry);
        }
        Ok(found)
    }

    /// The guest's own tables, then the nested ones; `None` out of guest mode.
    fn walk_guest(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        virtual_page: usize,
    ) -> Result<Option<Found>, Breach> {
        let Some(running) = self.running_on(cpu) else {
            return Ok(None);
        };
        let mut walk = memory.walk(cpu);
        let cell = running.tables[virtual_page].as_core();
        let visible = memory.walk_visible(&walk, cell);
        let age = chooser.choose(Question::Value, visible);
        let page = memory.walk_step(&mut walk, cell, age) as usize;
        let cached = self.guests.borrow()[cpu].leaf(page);
        let leaf = match cached {
            Some(leaf) if chooser.choose(Question::Tlb, 2) == 0 => Some(leaf),
            _ => self.walk_nested(memory, chooser, cpu, page)?,
        };
        Ok(Some(leaf.map_or(Found::Missing(page), |leaf| {
            Found::Frame(Combined { virtual_page, leaf })
        })))
    }

    fn walk_nested(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        page: usize,
    ) -> Result<Option<Leaf>, Breach> {
        let region = page / PAGES_PER_TABLE;
        let Some(structure) = self.nested_structure(memory, chooser, cpu, region)? else {
            return Ok(None);
        };
        let mut walk = structure.walk;
        let index = page % PAGES_PER_TABLE;
        let pte = self.read(memory, chooser, &mut walk, structure.table, index);
        Ok(pte.frame().map(|frame| Leaf {
            page,
            frame,
            writable: pte.is_writable(),
            is_block: false,
        }))
    }

    /// The entry of the nested root for a region: a cached one, or one read now.
    fn nested_structure(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        region: usize,
    ) -> Result<Option<Structure>, Breach> {
        let Some(running) = self.running_on(cpu) else {
            return Ok(None);
        };
        let cached = self.guests.borrow()[cpu].structure(region).cloned();
        if let Some(cached) = cached
            && chooser.choose(Question::Tlb, 2) == 0
        {
            self.book.borrow().check_table(cached.table, cached.life)?;
            return Ok(Some(cached));
        }
        self.book.borrow().check_table(running.root, running.life)?;
        let mut walk = memory.walk(cpu);
        let pte = self.read(memory, chooser, &mut walk, running.root, region);
        let Some(table) = pte.frame() else {
            return Ok(None);
        };
        let life = self.book.borrow().life_of_table(table)?;
        Ok(Some(Structure {
            region,
            table,
            life,
            walk,
            is_block: false,
        }))
    }

    fn running_on(&self, cpu: usize) -> Option<Running> {
        self.guests.borrow()[cpu].running().cloned()
    }

    /// Does what this number says, if its CPU runs.
    pub(in crate::kernel) fn act_in_guest_as_told(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        number: usize,
    ) -> Result<(), Breach> {
        let cpu = number / GuestAct::COUNT;
        let act = GuestAct::from_number(number % GuestAct::COUNT);
        if !self.tlbs.borrow()[cpu].runs {
            return Ok(());
        }
        self.act_in_guest(memory, chooser, cpu, act)
            .map_err(|(kind, story)| (kind, format!("the guest on cpu{cpu}: {story}")))
    }

    /// Acts of its own accord: see [`GuestAct`].
    fn act_in_guest(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        cpu: usize,
        act: GuestAct,
    ) -> Result<(), Breach> {
        match act {
            GuestAct::Combine(page) => {
                let known = self.guests.borrow()[cpu].combined_of(page).is_some();
                if !known
                    && let Some(Found::Frame(entry)) =
                        self.walk_guest(memory, chooser, cpu, page)?
                {
                    self.guests.borrow_mut()[cpu].cache_combined(entry);
                }
            }
            GuestAct::Cache(page) => {
                let known = self.guests.borrow()[cpu].leaf(page).is_some();
                if !known && let Some(leaf) = self.walk_nested(memory, chooser, cpu, page)? {
                    self.guests.borrow_mut()[cpu].cache_leaf(leaf);
                }
            }
            GuestAct::CacheStructure(region) => {
                let known = self.guests.borrow()[cpu].structure(region).is_some();
                if !known
                    && let Some(entry) = self.nested_structure(memory, chooser, cpu, region)?
                {
                    self.guests.borrow_mut()[cpu].cache_structure(entry);
                }
            }
            GuestAct::Evict => self.guests.borrow_mut()[cpu].evict(),
        }
        Ok(())
    }
}
