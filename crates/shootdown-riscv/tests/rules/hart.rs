//! The emulated hart.
//!
//! Rules: "Privileged", "Supervisor Memory-Management Fence Instruction", "Virtual Address Translation Process" and "Svinval". Where a hart may drop more than it must, this one does not; where it may
//! cache, it does, before every instruction, all that is reachable: under the loaded tag, from the loaded root and through what is cached already. What is cached of a region is found by its address, not by
//! the root that it came from. Before that, and so between any two instructions, [another hart](super::other) may act.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use shootdown_riscv::tlb::{self, Fence};
use shootdown_riscv::{Asid, AsidBits, Features, Mode, Processor, Tlb};

use super::memory::{Entry, KERNEL, Memory, PAGES, Page, Place, REGIONS, region_at};
use super::other::Other;

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

/// A cached entry: the leaf of a page, or what a root says of a region, which may be a leaf. Global ones have no tag.
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
    pub other: RefCell<Other>,
    pages: RefCell<BTreeSet<Cached<Page>>>,
    regions: RefCell<BTreeSet<Cached<usize>>>,
    /// The time of the last SFENCE.W.INVAL.
    stored: Cell<u64>,
    /// SINVAL.VMA that no SFENCE.INVAL.IR has followed.
    invalidated: RefCell<Vec<(usize, u64)>>,
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
            other: RefCell::default(),
            pages: RefCell::default(),
            regions: RefCell::default(),
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
        Memory::root_at(self.satp.get() << 20 >> 8)
    }

    pub const fn features(&self) -> Features {
        self.features
    }

    /// All that is cached of pages by now, and of megapages, page by page.
    pub fn cached_pages(&self) -> BTreeSet<Cached<Page>> {
        let mut all = BTreeSet::new();
        for Cached { tag, of, entry } in self.cached_regions() {
            if let Entry::Frame(first) = entry {
                all.extend((0..PAGES).map(|index| Cached {
                    tag,
                    of: Page { region: of, index },
                    entry: Entry::Frame(first + index as u32),
                }));
            }
        }
        all.extend(self.pages.borrow().iter().copied());
        all
    }

    /// All that is cached of roots by now.
    pub fn cached_regions(&self) -> BTreeSet<Cached<usize>> {
        self.speculate();
        self.regions.borrow().clone()
    }

    /// Whether it is cached under the loaded tag that a region has no table.
    pub fn lacks_table(&self, region: usize) -> bool {
        let regions = self.cached_regions();
        let mut here = regions.iter().filter(|cached| self.matches(cached.tag));
        here.any(|cached| cached.of == region && cached.entry == Entry::Invalid)
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

    /// What may happen before each instruction.
    pub fn begin(&self) {
        let mut memory = self.memory.borrow_mut();
        self.other.borrow_mut().act(&mut memory);
        drop(memory);
        self.speculate();
    }

    /// Caches whatever walks could, from the loaded root and through cached entries.
    fn speculate(&self) {
        let (tag, root, memory) = (self.loaded_tag(), self.loaded_root(), self.memory.borrow());
        let mut cached = self.regions.borrow_mut();
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
                        Entry::Invalid => vec![Entry::Invalid],
                        Entry::Frame(_) => vec![],
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

    /// Orders stores that were seen up to a time, and drops leaves.
    fn fence_leaf(&self, address: usize, up_to: u64) {
        self.memory.borrow_mut().order_leaf(address, up_to);
        let (page, region) = (Page::of(address), region_at(address));
        let mut pages = self.pages.borrow_mut();
        pages.retain(|cached| Some(cached.of) != page);
        let is_leaf = |entry| matches!(entry, Entry::Frame(_));
        let mut regions = self.regions.borrow_mut();
        regions.retain(|cached| Some(cached.of) != region || !is_leaf(cached.entry));
    }
}

impl tlb::Port for &Hart {
    fn sfence_vma(&self, what: Fence) {
        self.begin();
        if what != Fence::All && self.processor.has_cip_1200() {
            return;
        }
        let now = self.memory.borrow().clock;
        match what {
            Fence::All => {
                self.memory.borrow_mut().order_all();
                self.pages.borrow_mut().clear();
                self.regions.borrow_mut().clear();
            }
            Fence::Tag(asid) => {
                let tag = asid.as_u16() & self.asid_bits.tags() as u16;
                self.memory.borrow_mut().order_tag(tag);
                let mut pages = self.pages.borrow_mut();
                pages.retain(|cached| cached.tag != Some(tag));
                let mut regions = self.regions.borrow_mut();
                regions.retain(|cached| cached.tag != Some(tag));
            }
            Fence::Page(address) => self.fence_leaf(address, now),
        }
    }

    unsafe fn sfence_w_inval(&self) {
        assert!(self.features.has(Features::SVINVAL), "illegal instruction");
        self.begin();
        self.stored.set(self.memory.borrow().clock);
    }

    unsafe fn sinval_vma(&self, address: usize) {
        assert!(self.features.has(Features::SVINVAL), "illegal instruction");
        self.begin();
        if !self.processor.has_cip_1200() {
            let invalidated = (address, self.stored.get());
            self.invalidated.borrow_mut().push(invalidated);
        }
    }

    unsafe fn sfence_inval_ir(&self) {
        assert!(self.features.has(Features::SVINVAL), "illegal instruction");
        self.begin();
        for (address, stored) in self.invalidated.take() {
            self.fence_leaf(address, stored);
        }
    }

    fn read_satp(&self) -> u64 {
        self.begin();
        self.satp.get()
    }

    unsafe fn write_satp(&self, value: u64) {
        self.begin();
        assert_eq!(Mode::of_satp(value), Some(MODE));
        let lacks = (0xffff & !(self.asid_bits.tags() as u64)) << SATP_ASID.trailing_zeros();
        self.satp.set(value & !lacks);
        self.speculate();
    }
}
