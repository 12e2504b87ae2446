//! The emulated processor.
//!
//! Rules: SDM vol. 3A, "Process-Context Identifiers (PCIDs)" and "Operations that Invalidate TLBs and
//! Paging-Structure Caches"; vol. 2, "INVPCID", "INVLPG", "MOV-Move to/from Control Registers". Where a
//! processor may drop more than it must, this one does not; where it may cache, it does, before every
//! instruction, all that is reachable. EFER.TCE, where the processor has it, is set unless a test clears it: APM vol. 2, "Extended
//! Feature Enable Register (EFER)".

mod instructions;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use shootdown_x86::features::{FeatureFlags, Features};

use super::tables::{Leaf, Page, Tables};

pub const CR4_PGE: u64 = 1 << 7;
pub const CR4_PCIDE: u64 = 1 << 17;
/// Always set in 64-bit mode.
pub const CR4_PAE: u64 = 1 << 5;
pub const CR4_LA57: u64 = 1 << 12;
/// Nothing to do with translation: a handler may change it.
pub const CR4_TSD: u64 = 1 << 2;
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
    /// EFER.TCE.
    tce: bool,
    cr3: Cell<u64>,
    cr4: Cell<u64>,
    interrupts: Cell<bool>,
    /// Instructions until an interrupt comes, whose handler loads this root and changes CR4.TSD.
    handler: Cell<Option<(u32, u64)>>,
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
            tce: features.has_tce(),
            cr3: Cell::new(Tables::root_address(0)),
            cr4: Cell::new(CR4_PAE | if features.has_pge() { CR4_PGE } else { 0 }),
            interrupts: Cell::new(true),
            handler: Cell::new(None),
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

    /// The same, EFER.TCE clear.
    pub fn with_tce_clear(self) -> Self {
        Self { tce: false, ..self }
    }

    /// The same, but with these bits changed before anything else happens.
    pub fn with_changed(self, cr3: u64, cr4: u64) -> Self {
        self.cr3.set(self.cr3.get() ^ cr3);
        self.cr4.set(self.cr4.get() ^ cr4);
        self
    }

    /// Has an interrupt come before the instruction with this number, or as soon as interrupts are on.
    pub fn interrupt_before(&self, instruction: u32, new_cr3: u64) {
        self.handler.set(Some((instruction, new_cr3)));
    }

    /// Whether the interrupt is still to come.
    pub fn is_interrupt_due(&self) -> bool {
        self.handler.get().is_some()
    }

    fn step(&self) {
        let Some((left, cr3)) = self.handler.get() else {
            return;
        };
        if left == 0 && self.interrupts.get() {
            self.handler.set(None);
            self.cr3.set(cr3);
            self.drop_tag(self.loaded_tag());
            self.cr4.set(self.cr4.get() ^ CR4_TSD);
        } else {
            let left = left.saturating_sub(1);
            self.handler.set(Some((left, cr3)));
        }
    }

    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Whether EFER.TCE is set.
    pub fn has_tce_on(&self) -> bool {
        self.tce
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
