//! The emulated processor.
//!
//! Rules: LoongArch reference manual vol. 1, 4.2.4.7 "INVTLB", 5.4 "Memory Management of Page Table Mapping", 7.5 "Control and Status Registers Related to Mapped Address Translation". It walks by
//! itself at every operation, from the loaded root, under the loaded tag; caches pairs, invalid ones too; caches directory entries by tag, which the manual neither has nor forbids; and forgets
//! nothing unless it must. Other CPUs store to tables, and free them, before any operation ([`Others`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use shootdown_loongarch::IrqState;
use shootdown_loongarch::tlb::{Asid, Invtlb, Port};

use super::others::Others;
use super::tables::{Directory, Leaf, PAGES, Page, REGIONS, Tables};

/// What an entry of the TLB translates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Span {
    /// Two pages of a region, by the number of the pair.
    Pair(usize),
    /// All of a region.
    Huge,
}

/// An entry of the TLB. Global ones have no tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cached {
    pub tag: Option<u16>,
    pub region: usize,
    pub span: Span,
    pub leaves: [Leaf; 2],
}

impl Cached {
    /// The pages that it translates, and how.
    pub fn pages(&self) -> impl Iterator<Item = (Page, Leaf)> + '_ {
        (0..PAGES).filter_map(move |index| {
            let region = self.region;
            let leaf = match self.span {
                Span::Huge => self.leaves[0],
                Span::Pair(pair) if pair == index / 2 => self.leaves[index % 2],
                Span::Pair(_) => return None,
            };
            Some((Page { region, index }, leaf))
        })
    }

    /// Whether an access may find both: they were filled for different addresses, or under different tags. (Two of one span are what one fill may have found.)
    fn is_hit_with(&self, other: &Self) -> bool {
        let has_other_kind = (self.span == Span::Huge) != (other.span == Span::Huge)
            || self.span == other.span && self.tag.is_some() != other.tag.is_some();
        self.region == other.region && has_other_kind
    }

    fn holds(&self, address: usize) -> bool {
        Page::pair_of(address).is_some_and(|(region, pair)| {
            self.region == region && (self.span == Span::Huge || self.span == Span::Pair(pair))
        })
    }
}

/// A cached directory entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct CachedDirectory {
    tag: u16,
    region: usize,
    table: usize,
}

#[derive(Debug)]
pub struct Processor {
    asid: Cell<u16>,
    /// Bits of CSR.ASID that keep what is written.
    mask: u16,
    /// What the register says of that.
    said: u32,
    pgdl: Cell<u64>,
    interrupts: Cell<bool>,
    pages: RefCell<BTreeSet<Cached>>,
    directories: RefCell<BTreeSet<CachedDirectory>>,
    mistake: Cell<Option<&'static str>>,
    pub others: RefCell<Others>,
    pub memory: RefCell<Tables>,
}

impl Processor {
    /// Root 0 is loaded, under a tag that firmware has left.
    pub fn new(bits: u32, said: u32, memory: Tables) -> Self {
        let mask = (1 << bits) - 1;
        Self {
            asid: Cell::new(1 & mask),
            mask,
            said,
            pgdl: Cell::new(Tables::root_address(0)),
            interrupts: Cell::new(true),
            pages: RefCell::default(),
            directories: RefCell::default(),
            mistake: Cell::new(None),
            others: RefCell::new(Others::idle()),
            memory: RefCell::new(memory),
        }
    }

    pub fn loaded_root(&self) -> usize {
        Tables::root_at(self.pgdl.get())
    }

    pub fn has_interrupts_on(&self) -> bool {
        self.interrupts.get()
    }

    /// What the manual leaves undefined, or a host must never let happen, if it has.
    pub fn mistake(&self) -> Option<&'static str> {
        self.mistake.get()
    }

    /// Before each operation: what others do, and a walk.
    fn begin(&self) {
        self.others.borrow_mut().act(&mut self.memory.borrow_mut());
        self.walk();
    }

    /// All entries that an access now may use.
    pub fn usable(&self) -> Vec<Cached> {
        self.walk();
        let tag = self.asid.get();
        let is_usable = |cached: &&Cached| cached.tag.is_none_or(|other| other == tag);
        let pages = self.pages.borrow();
        let usable: Vec<Cached> = pages.iter().filter(is_usable).copied().collect();
        let are_two_hits = |one: &Cached| usable.iter().any(|other| one.is_hit_with(other));
        if usable.iter().any(are_two_hits) {
            self.mistake.set(Some("two hits"));
        }
        usable
    }

    /// Caches whatever walks from the loaded roots can find, through cached directory entries too.
    pub fn walk(&self) {
        let (tag, root) = (self.asid.get(), self.loaded_root());
        let memory = self.memory.borrow();
        let mut directories = self.directories.borrow_mut();
        for region in 0..REGIONS {
            for &directory in memory.directory(root, region).seen() {
                match directory {
                    Directory::Table(table) => {
                        directories.insert(CachedDirectory { tag, region, table });
                    }
                    Directory::Huge(leaf) => self.fill(region, Span::Huge, [leaf; 2]),
                    Directory::Nothing => self.mistake.set(Some("walked physical page 0")),
                }
            }
        }
        for cached in directories.iter().filter(|cached| cached.tag == tag) {
            let table = memory.table(cached.table);
            if table.is_freed {
                self.mistake.set(Some("walked a freed table"));
            }
            for (pair, leaves) in table.leaves.chunks(2).enumerate() {
                for &even in leaves[0].seen() {
                    for &odd in leaves[1].seen() {
                        self.fill(cached.region, Span::Pair(pair), [even, odd]);
                    }
                }
            }
        }
    }

    fn fill(&self, region: usize, span: Span, leaves: [Leaf; 2]) {
        let is_global = leaves.iter().all(|leaf| leaf.global);
        let tag = (!is_global).then_some(self.asid.get());
        self.pages.borrow_mut().insert(Cached {
            tag,
            region,
            span,
            leaves,
        });
    }

    fn drop_pages(&self, is_dropped: impl Fn(&Cached) -> bool) {
        self.pages.borrow_mut().retain(|cached| !is_dropped(cached));
    }

    fn drop_directories(&self, is_dropped: impl Fn(&CachedDirectory) -> bool) {
        self.directories
            .borrow_mut()
            .retain(|cached| !is_dropped(cached));
    }
}

impl Port for &Processor {
    fn dbar(&self) {
        self.begin();
        self.memory.borrow_mut().complete();
    }

    fn invtlb(&self, operation: Invtlb) {
        self.begin();
        let leads_to = |cached: &CachedDirectory, asid: Asid, address: usize| {
            let region = Page::pair_of(address).map(|(region, _)| region);
            cached.tag == asid.as_u16() && Some(cached.region) == region
        };
        match operation {
            Invtlb::All => {
                self.drop_pages(|_| true);
                self.drop_directories(|_| true);
            }
            Invtlb::NonGlobal => {
                self.drop_pages(|cached| cached.tag.is_some());
                self.drop_directories(|_| true);
            }
            Invtlb::Tag(asid) => {
                self.drop_pages(|cached| cached.tag == Some(asid.as_u16()));
                self.drop_directories(|cached| cached.tag == asid.as_u16());
            }
            Invtlb::Page(asid, address) => {
                self.drop_pages(|cached| {
                    cached.tag.is_none_or(|tag| tag == asid.as_u16()) && cached.holds(address)
                });
                self.drop_directories(|cached| leads_to(cached, asid, address));
            }
        }
    }

    fn read_asid(&self) -> u32 {
        self.begin();
        self.said << 16 | u32::from(self.asid.get())
    }

    unsafe fn write_asid(&self, asid: Asid) {
        self.begin();
        assert!(!self.interrupts.get(), "ASID changes with interrupts on");
        self.asid.set(asid.as_u16() & self.mask);
    }

    fn read_pgdl(&self) -> u64 {
        self.begin();
        self.pgdl.get()
    }

    unsafe fn write_pgdl(&self, root: u64) {
        self.begin();
        assert!(!self.interrupts.get(), "PGDL changes with interrupts on");
        self.pgdl.set(root);
    }

    fn irq_save(&self) -> IrqState {
        self.begin();
        match self.interrupts.replace(false) {
            true => IrqState::Enabled,
            false => IrqState::Disabled,
        }
    }

    unsafe fn irq_restore(&self, before: IrqState) {
        self.begin();
        self.interrupts.set(before.is_enabled());
    }
}
