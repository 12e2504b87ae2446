//! The emulated hart.
//!
//! Rules: "Privileged", "Supervisor Memory-Management Fence Instruction", "Virtual Address Translation Process" and "Svinval". Where a hart may drop more than it must, this one does not; where it may
//! cache, it does, before every instruction, all that is reachable: under the loaded tag, from the loaded root and through what is cached already. What is cached of a region is found by its address, not by
//! the root that it came from.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use shootdown_riscv::tlb::{self, Fence};
use shootdown_riscv::{Asid, AsidBits, Features, Mode, Processor, Tlb};

use super::memory::{Entry, KERNEL, Memory, PAGES, Page, Place, REGIONS};

pub const MODE: Mode = Mode::Sv39;
const SATP_ASID: u64 = 0xffff << 44;

/// A processor without errata, and one with CIP-1200.
pub const SOUND: Processor = Processor {
    vendor: 0,
    architecture: 0,
    implementation: 0,
};
pub const CIP_1200: Processor = Processor {
    vendor: 0x489,
    architecture: 1,
    implementation: 0x20_0630,
};

/// A cached entry, a leaf of a page or the one that leads to the table of a region. Global ones have no tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cached<K> {
    pub tag: Option<u16>,
    pub of: K,
    pub entry: Entry,
}

#[derive(Debug)]
pub struct Hart {
    processor: Processor,
    features: Features,
    asid_bits: AsidBits,
    satp: Cell<u64>,
    pub memory: RefCell<Memory>,
    pages: RefCell<BTreeSet<Cached<Page>>>,
    tables: RefCell<BTreeSet<Cached<usize>>>,
    /// Stores before the last SFENCE.W.INVAL.
    stored: Cell<u64>,
    /// SINVAL.VMA that no SFENCE.INVAL.IR has followed.
    invalidated: RefCell<Vec<(Page, u64)>>,
    /// Freed tables that were walked.
    pub walked_freed: Cell<u32>,
}

impl Hart {
    /// Root 0 is loaded under tag 0.
    pub fn new(asid_bits: u8, features: Features, processor: Processor, memory: Memory) -> Self {
        Self {
            processor,
            features,
            asid_bits: AsidBits::new(asid_bits).unwrap(),
            satp: Cell::new(MODE.satp(Memory::root_address(0), Asid::UNTAGGED)),
            memory: RefCell::new(memory),
            pages: RefCell::default(),
            tables: RefCell::default(),
            stored: Cell::new(0),
            invalidated: RefCell::default(),
            walked_freed: Cell::new(0),
        }
    }

    pub fn tlb(&self) -> Tlb<&Self> {
        // SAFETY: emulated, as the values say.
        unsafe { Tlb::new(self, MODE, self.asid_bits, self.features, self.processor) }
    }

    pub fn loaded_tag(&self) -> u16 {
        (self.satp.get() >> 44 & 0xffff) as u16
    }

    pub fn loaded_root(&self) -> usize {
        Memory::root_at(Mode::root(self.satp.get()))
    }

    /// All that is cached of pages, by now.
    pub fn cached_pages(&self) -> BTreeSet<Cached<Page>> {
        self.speculate();
        self.pages.borrow().clone()
    }

    pub fn cached_tables(&self) -> BTreeSet<Cached<usize>> {
        self.speculate();
        self.tables.borrow().clone()
    }

    /// What an access of the page may find now.
    pub fn usable(&self, page: Page) -> BTreeSet<Entry> {
        let pages = self.cached_pages();
        let usable = pages
            .iter()
            .filter(|cached| cached.of == page && self.matches(cached.tag));
        usable.map(|cached| cached.entry).collect()
    }

    fn matches(&self, tag: Option<u16>) -> bool {
        tag.is_none_or(|tag| tag == self.loaded_tag())
    }

    /// Caches whatever walks could, from the loaded root and through cached entries.
    fn speculate(&self) {
        let (tag, root, memory) = (self.loaded_tag(), self.loaded_root(), self.memory.borrow());
        let mut cached = self.tables.borrow_mut();
        let mut pages = self.pages.borrow_mut();
        for region in 0..REGIONS {
            let key = (region != KERNEL).then_some(tag);
            for entry in memory.readable(Place::Top(root, region), tag) {
                let of = region;
                cached.insert(Cached {
                    tag: key,
                    of,
                    entry,
                });
            }
            let here = cached
                .iter()
                .filter(|cached| cached.of == region && self.matches(cached.tag));
            for above in here {
                for index in 0..PAGES {
                    let of = Page { region, index };
                    let found = match above.entry {
                        Entry::Table(table) => {
                            let freed = u32::from(memory.is_freed(table));
                            self.walked_freed.set(self.walked_freed.get() + freed);
                            memory.readable(Place::Leaf(table, index), tag)
                        }
                        _ => vec![Entry::Invalid],
                    };
                    let cached = found.into_iter().map(|entry| Cached {
                        tag: key,
                        of,
                        entry,
                    });
                    pages.extend(cached);
                }
            }
        }
    }

    fn drop_page(&self, page: Page, tag: Option<u16>) {
        let is_named = |cached: &Cached<Page>| {
            cached.of == page && tag.is_none_or(|tag| cached.tag == Some(tag))
        };
        self.pages.borrow_mut().retain(|cached| !is_named(cached));
    }
}

impl tlb::Port for &Hart {
    fn sfence_vma(&self, what: Fence) {
        self.speculate();
        if what != Fence::All && self.processor.has_cip_1200() {
            return;
        }
        let mut memory = self.memory.borrow_mut();
        let mask = self.asid_bits.tags() as u16;
        match what {
            Fence::All => {
                memory.order_all();
                self.pages.borrow_mut().clear();
                self.tables.borrow_mut().clear();
            }
            Fence::Tag(asid) => {
                let tag = asid.as_u16() & mask;
                memory.order_tag(tag, None);
                self.pages
                    .borrow_mut()
                    .retain(|cached| cached.tag != Some(tag));
                self.tables
                    .borrow_mut()
                    .retain(|cached| cached.tag != Some(tag));
            }
            Fence::Page(address) => {
                if let Some(page) = Page::of(address) {
                    memory.order_page(page, u64::MAX);
                    self.drop_page(page, None);
                }
            }
            Fence::PageOfTag(address, asid) => {
                let tag = asid.as_u16() & mask;
                if let Some(page) = Page::of(address) {
                    memory.order_tag(tag, Some(page));
                    self.drop_page(page, Some(tag));
                }
            }
        }
    }

    unsafe fn sfence_w_inval(&self) {
        assert!(self.features.has(Features::SVINVAL), "illegal instruction");
        self.speculate();
        self.stored.set(self.memory.borrow().stores);
    }

    unsafe fn sinval_vma(&self, address: usize) {
        assert!(self.features.has(Features::SVINVAL), "illegal instruction");
        self.speculate();
        if let Some(page) = Page::of(address).filter(|_| !self.processor.has_cip_1200()) {
            self.invalidated
                .borrow_mut()
                .push((page, self.stored.get()));
        }
    }

    unsafe fn sfence_inval_ir(&self) {
        assert!(self.features.has(Features::SVINVAL), "illegal instruction");
        self.speculate();
        for (page, stored) in self.invalidated.take() {
            self.memory.borrow_mut().order_page(page, stored);
            self.drop_page(page, None);
        }
    }

    fn read_satp(&self) -> u64 {
        self.speculate();
        self.satp.get()
    }

    unsafe fn write_satp(&self, value: u64) {
        self.speculate();
        assert_eq!(Mode::of_satp(value), Some(MODE));
        let lacks = (0xffff & !(self.asid_bits.tags() as u64)) << SATP_ASID.trailing_zeros();
        self.satp.set(value & !lacks);
        self.speculate();
    }
}
