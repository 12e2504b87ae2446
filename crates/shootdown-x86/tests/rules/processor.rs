//! The emulated processor.
//!
//! Rules: SDM vol. 3A, "Process-Context Identifiers (PCIDs)" and "Operations that Invalidate TLBs and
//! Paging-Structure Caches"; vol. 2, "INVPCID", "INVLPG", "MOV-Move to/from Control Registers". Where a
//! processor may drop more than it must, this one does not; where it may cache, it does, before every
//! instruction, all that is reachable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use shootdown_x86::IrqState;
use shootdown_x86::features::{FeatureFlags, Features};
use shootdown_x86::tlb::{InvpcidKind, Port};

use super::tables::{Leaf, Page, Tables};

pub const CR4_PGE: u64 = 1 << 7;
pub const CR4_PCIDE: u64 = 1 << 17;
const CR3_PCID: u64 = 0xfff;
const CR3_KEEP: u64 = 1 << 63;
/// The emulated processor has as many physical address bits.
const CR3_RESERVED: u64 = !(CR3_KEEP | ((1 << 46) - 1));

/// A cached translation. Global ones have no tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cached {
    pub tag: Option<u16>,
    pub page: Page,
    pub leaf: Leaf,
}

/// A cached pointer to the table of a region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CachedTable {
    pub tag: u16,
    pub region: usize,
    pub table: usize,
}

/// When something was cached, in operations of the driver.
pub type Born = u32;

/// What is cached.
#[derive(Clone, Default, Debug)]
pub struct Caches {
    pub pages: BTreeMap<Cached, Born>,
    pub tables: BTreeMap<CachedTable, Born>,
}

#[derive(Debug)]
pub struct Processor {
    features: Features,
    /// INVLPG leaves global translations behind while PCIDs are on.
    invlpg_misses: bool,
    cr3: Cell<u64>,
    cr4: Cell<u64>,
    interrupts: Cell<bool>,
    now: Cell<Born>,
    caches: RefCell<Caches>,
    pub memory: RefCell<Tables>,
}

impl Processor {
    /// Root 0 is loaded; global pages are on where they exist.
    pub fn new(flags: FeatureFlags, memory: Tables) -> Self {
        let features = Features::with_flags(flags);
        Self {
            features,
            invlpg_misses: false,
            cr3: Cell::new(Tables::root_address(0)),
            cr4: Cell::new(if features.has_pge() { CR4_PGE } else { 0 }),
            interrupts: Cell::new(true),
            now: Cell::new(0),
            caches: RefCell::default(),
            memory: RefCell::new(memory),
        }
    }

    /// The same with the erratum of Alder Lake.
    pub fn with_invlpg_misses(self) -> Self {
        Self {
            invlpg_misses: true,
            ..self
        }
    }

    pub fn features(&self) -> &Features {
        &self.features
    }

    pub fn has_pcids_on(&self) -> bool {
        self.cr4.get() & CR4_PCIDE != 0
    }

    /// The tag that translations get now.
    pub fn loaded_tag(&self) -> u16 {
        if self.has_pcids_on() {
            (self.cr3.get() & CR3_PCID) as u16
        } else {
            0
        }
    }

    pub fn loaded_root(&self) -> usize {
        Tables::root_at(self.cr3.get() & !CR3_PCID)
    }

    pub fn interrupts_are_on(&self) -> bool {
        self.interrupts.get()
    }

    /// Begins an operation of the driver: what is cached from now on is younger than it.
    pub fn begin(&self) -> Born {
        self.speculate();
        self.now.set(self.now.get() + 1);
        self.now.get()
    }

    pub fn caches(&self) -> Caches {
        self.caches.borrow().clone()
    }

    /// All translations that an access now may use.
    pub fn usable(&self) -> Vec<Cached> {
        self.speculate();
        let tag = self.loaded_tag();
        let is_usable = |cached: &&Cached| cached.tag.is_none_or(|other| other == tag);
        let caches = self.caches.borrow();
        caches.pages.keys().filter(is_usable).copied().collect()
    }

    /// Caches whatever a walk from the loaded root could, through cached tables too.
    fn speculate(&self) {
        let (tag, root, now) = (self.loaded_tag(), self.loaded_root(), self.now.get());
        let (memory, mut caches) = (self.memory.borrow(), self.caches.borrow_mut());
        for region in 0..super::tables::REGIONS {
            if let Some(table) = memory.table_of(root, region) {
                let cached = CachedTable { tag, region, table };
                caches.tables.entry(cached).or_insert(now);
            }
        }
        let tables: Vec<CachedTable> = caches.tables.keys().copied().collect();
        for cached in tables.into_iter().filter(|cached| cached.tag == tag) {
            for (index, &leaf) in memory.table(cached.table).iter().enumerate() {
                let Some(leaf) = leaf else { continue };
                let global = leaf.global && self.cr4.get() & CR4_PGE != 0;
                let page = Page {
                    region: cached.region,
                    index,
                };
                let tag = (!global).then_some(tag);
                let page = Cached { tag, page, leaf };
                caches.pages.entry(page).or_insert(now);
            }
        }
    }

    fn drop_pages(&self, is_dropped: impl Fn(&Cached) -> bool) {
        let mut caches = self.caches.borrow_mut();
        caches.pages.retain(|cached, _| !is_dropped(cached));
    }

    fn drop_tables(&self, is_dropped: impl Fn(&CachedTable) -> bool) {
        let mut caches = self.caches.borrow_mut();
        caches.tables.retain(|cached, _| !is_dropped(cached));
    }

    fn drop_tag(&self, tag: u16) {
        self.drop_pages(|cached| cached.tag == Some(tag));
        self.drop_tables(|cached| cached.tag == tag);
    }

    fn drop_all(&self) {
        self.drop_pages(|_| true);
        self.drop_tables(|_| true);
    }
}

fn fault_if(is_wrong: bool, what: &str) {
    assert!(!is_wrong, "#GP: {what}");
}

impl Port for &Processor {
    fn invlpg(&self, address: usize) {
        self.speculate();
        let tag = self.loaded_tag();
        let misses = self.invlpg_misses && self.has_pcids_on();
        if let Some(page) = Page::of(address) {
            self.drop_pages(|cached| {
                let reaches = cached.tag.map_or(!misses, |other| other == tag);
                cached.page == page && reaches
            });
        }
        self.drop_tables(|cached| cached.tag == tag);
    }

    fn invpcid(&self, kind: InvpcidKind) {
        self.speculate();
        assert!(self.features.has_invpcid(), "#UD: no INVPCID");
        if let InvpcidKind::Page(pcid, _) | InvpcidKind::Context(pcid) = kind {
            let needs_pcids = pcid.as_u16() != 0;
            fault_if(needs_pcids && !self.has_pcids_on(), "a tag without PCIDE");
        }
        match kind {
            InvpcidKind::Page(pcid, address) => {
                let Some(page) = Page::of(address) else {
                    return;
                };
                let tag = pcid.as_u16();
                self.drop_pages(|cached| cached.tag == Some(tag) && cached.page == page);
                self.drop_tables(|cached| cached.tag == tag && cached.region == page.region);
            }
            InvpcidKind::Context(pcid) => self.drop_tag(pcid.as_u16()),
            InvpcidKind::All => self.drop_all(),
            InvpcidKind::AllNonGlobal => {
                self.drop_pages(|cached| cached.tag.is_some());
                self.drop_tables(|_| true);
            }
        }
    }

    fn read_cr3(&self) -> u64 {
        self.cr3.get()
    }

    unsafe fn write_cr3(&self, value: u64) {
        self.speculate();
        fault_if(value & CR3_RESERVED != 0, "reserved bits in CR3");
        let keep = value & CR3_KEEP != 0;
        fault_if(keep && !self.has_pcids_on(), "CR3 bit 63 without PCIDE");
        self.cr3.set(value & !CR3_KEEP);
        if !keep {
            self.drop_tag(self.loaded_tag());
        }
    }

    fn read_cr4(&self) -> u64 {
        self.cr4.get()
    }

    unsafe fn write_cr4(&self, value: u64) {
        self.speculate();
        assert!(!self.interrupts.get(), "CR4 changes with interrupts on");
        let changed = value ^ self.cr4.get();
        let has = |bit| value & bit != 0;
        let lacks_pge = has(CR4_PGE) && !self.features.has_pge();
        fault_if(lacks_pge, "CR4.PGE is not supported");
        let lacks_pcid = has(CR4_PCIDE) && !self.features.has_pcid();
        fault_if(lacks_pcid, "CR4.PCIDE is not supported");
        let turns_on = changed & CR4_PCIDE & value != 0;
        let is_tagged = self.cr3.get() & CR3_PCID != 0;
        fault_if(turns_on && is_tagged, "PCIDE with CR3 bits 11:0 set");
        let turns_off = changed & CR4_PCIDE & !value != 0;
        self.cr4.set(value);
        if turns_off || changed & CR4_PGE != 0 {
            self.drop_all();
        }
    }

    fn irq_save(&self) -> IrqState {
        match self.interrupts.replace(false) {
            true => IrqState::Enabled,
            false => IrqState::Disabled,
        }
    }

    fn irq_restore(&self, before: IrqState) {
        self.interrupts.set(before.is_enabled());
    }
}
