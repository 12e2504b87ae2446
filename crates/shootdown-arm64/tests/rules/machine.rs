//! The emulated machine: DDI 0487, D8.16, D8.17, B2.6.9. Before and behind every operation each CPU caches all that a walk may find,
//! and between any two operations of one CPU the other may do what it has planned.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shootdown_arm64::tlb::{Depth, Dsb, Port, Reach, Tlbi};

use super::memory::{
    CPUS, KERNEL, KERNEL_ROOT, Leaf, Memory, Old, PAGES, Page, USER_REGIONS, Value, Word,
};

pub const TCR_A1: u64 = 1 << 22;
pub const TCR_AS: u64 = 1 << 36;

/// A cached translation; a global one has no tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cached {
    pub tag: Option<u16>,
    pub page: Page,
    pub leaf: Leaf,
}

impl Cached {
    fn new(tag: u16, page: Page, leaf: Leaf) -> Self {
        let tag = (!leaf.global).then_some(tag);
        Self { tag, page, leaf }
    }

    fn shares_addresses(&self, other: &Self) -> bool {
        let is_large = self.leaf.block || other.leaf.block;
        self.page.region == other.page.region && (is_large || self.page.index == other.page.index)
    }
}

/// A cached entry that leads to a table of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CachedTable {
    pub tag: u16,
    pub region: usize,
    pub table: usize,
}

/// When a walk found a translation, and when the entry for a table was cached that the walk went through: a TLBI that drops both has its effect on both at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Born {
    at: u64,
    through: u64,
}

/// A TLBI without the DSB that completes it, and when it was executed.
#[derive(Clone, Copy, Debug)]
struct Pending {
    reach: Reach,
    operation: Tlbi,
    at: u64,
}

pub struct Cpu {
    /// TTBR0_EL1 as walkers may take it: until the ISB any of these, the last is what reads back.
    ttbr0: Vec<u64>,
    /// TCR_EL1, likewise.
    tcr: Vec<u64>,
    pub pages: BTreeMap<Cached, Born>,
    pub tables: BTreeMap<CachedTable, u64>,
    pending: Vec<Pending>,
    /// Dropped, but used by instructions that were fetched before.
    pipeline: BTreeSet<Cached>,
    /// Something became visible to walks that this CPU's next instructions may not have made anew.
    unsynchronised: bool,
    /// Stores that were translated by what another CPU has dropped, and that nobody has waited for (the errata).
    stores_in_flight: bool,
}

pub struct Machine {
    pub memory: RefCell<Memory>,
    pub cpus: RefCell<[Cpu; CPUS]>,
    now: RefCell<u64>,
    /// The CPUs have 16 bits.
    wide: bool,
    repeats: bool,
    /// While root and tag change in one write a walk may take the old one of either with the new one of the other (Falkor E1003).
    mixes: bool,
    planned: RefCell<Plan>,
}

/// What a CPU does at once.
pub type Act = Box<dyn FnOnce(&Machine)>;

/// What a CPU does while another is between two operations: each act so many operations behind the one before.
#[derive(Default)]
pub struct Plan {
    pub cpu: usize,
    pub acts: VecDeque<(usize, Act)>,
}

pub fn root_address(root: usize) -> u64 {
    0x1_0000 * (root as u64 + 1)
}

fn root_at(ttbr0: u64) -> usize {
    ((ttbr0 & 0xffff_ffff_fffe) / 0x1_0000 - 1) as usize
}

impl Machine {
    pub fn new(wide: bool, repeats: bool) -> Self {
        let cpu = |_| Cpu {
            ttbr0: vec![root_address(0)],
            tcr: vec![if wide { TCR_AS } else { 0 }],
            pages: BTreeMap::new(),
            tables: BTreeMap::new(),
            pending: Vec::new(),
            pipeline: BTreeSet::new(),
            unsynchronised: false,
            stores_in_flight: false,
        };
        Self {
            memory: RefCell::new(Memory::new()),
            cpus: RefCell::new(core::array::from_fn(cpu)),
            now: RefCell::new(0),
            wide,
            repeats,
            mixes: false,
            planned: RefCell::default(),
        }
    }

    pub fn mixing(self, mixes: bool) -> Self {
        Self { mixes, ..self }
    }

    pub fn plan(&self, plan: Plan) {
        let before = self.planned.replace(plan);
        assert!(before.acts.is_empty());
    }

    /// What is still planned.
    pub fn finish_plan(&self) {
        while let Some((_, act)) = self.next_planned(|_| true) {
            act(self);
        }
    }

    fn next_planned(&self, is_due: impl Fn(usize) -> bool) -> Option<(usize, Act)> {
        let acts = &mut self.planned.borrow_mut().acts;
        let &(left, _) = acts.front()?;
        if is_due(left) {
            return acts.pop_front();
        }
        acts[0].0 = left - 1;
        None
    }

    /// `cpu` is between two operations.
    fn between(&self, cpu: usize) {
        if self.planned.borrow().cpu == cpu {
            return;
        }
        while let Some((_, act)) = self.next_planned(|left| left == 0) {
            act(self);
        }
    }

    pub fn on(&self, cpu: usize) -> On<'_> {
        On { machine: self, cpu }
    }

    /// What a CPU may use at once. Panics if it has not got over an operation.
    pub fn usable(&self, cpu: usize) -> Vec<Cached> {
        self.speculate();
        let cpus = self.cpus.borrow();
        let this = &cpus[cpu];
        assert_eq!(
            (this.ttbr0.len(), this.tcr.len()),
            (1, 1),
            "a root without ISB"
        );
        assert!(this.pending.is_empty(), "a TLBI without DSB");
        assert!(this.pipeline.is_empty(), "a TLBI without ISB");
        assert!(!this.unsynchronised, "a store without ISB");
        assert!(!this.stores_in_flight, "stores in flight: no second TLBI");
        let tag = this.tag(this.ttbr0[0]);
        let pages = this.pages.keys();
        let usable = pages.filter(|cached| cached.tag.is_none_or(|other| other == tag));
        usable.copied().collect()
    }

    pub fn loaded(&self, cpu: usize) -> (usize, u16) {
        let this = &self.cpus.borrow()[cpu];
        let ttbr0 = *this.ttbr0.last().unwrap();
        (root_at(ttbr0), this.tag(ttbr0))
    }

    fn speculate(&self) {
        let now = *self.now.borrow();
        let memory = self.memory.borrow();
        for (cpu, this) in self.cpus.borrow_mut().iter_mut().enumerate() {
            let mut roots = this.ttbr0.clone();
            if self.mixes {
                let mixed = |&root: &u64| {
                    this.ttbr0
                        .iter()
                        .map(move |tag| root << 16 >> 16 | tag >> 48 << 48)
                };
                roots = this.ttbr0.iter().flat_map(mixed).collect();
            }
            let roots = roots.into_iter();
            let contexts = roots.flat_map(|ttbr0| this.tcr.iter().map(move |&tcr| (ttbr0, tcr)));
            for (ttbr0, tcr) in contexts.collect::<Vec<_>>() {
                let tag = tag_under(tcr, ttbr0);
                let born = Born {
                    at: now,
                    through: now,
                };
                let tops = (0..USER_REGIONS).map(|region| (root_at(ttbr0), region));
                for (root, region) in tops.chain([(KERNEL_ROOT, KERNEL)]) {
                    let page = Page { region, index: 0 };
                    for value in memory.walked(cpu, Word::Top(root, region)) {
                        match value {
                            Value::Table(table) => {
                                this.cache_table(CachedTable { tag, region, table }, now);
                            }
                            Value::Leaf(leaf) => {
                                this.cache_page(Cached::new(tag, page, leaf), born)
                            }
                            Value::Nothing => {}
                        }
                    }
                }
                let tables = this.tables.clone().into_iter();
                for (cached, through) in tables.filter(|(cached, _)| cached.tag == tag) {
                    assert!(
                        !memory.is_freed(cached.table),
                        "walks a freed table: {cached:?}"
                    );
                    for index in 0..PAGES {
                        let page = Page {
                            region: cached.region,
                            index,
                        };
                        for value in memory.walked(cpu, Word::Leaf(cached.table, index)) {
                            if let Value::Leaf(leaf) = value {
                                this.cache_page(
                                    Cached::new(tag, page, leaf),
                                    Born { through, ..born },
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    fn step(&self) {
        self.speculate();
        *self.now.borrow_mut() += 1;
    }

    /// Completes this CPU's TLBIs. They may have had their effect when they were executed: what was cached since stays.
    fn complete(&self, cpu: usize, is_meant: impl Fn(Reach) -> bool) {
        let mut cpus = self.cpus.borrow_mut();
        let pending = std::mem::take(&mut cpus[cpu].pending);
        let (done, left): (Vec<_>, Vec<_>) = pending.into_iter().partition(|p| is_meant(p.reach));
        cpus[cpu].pending = left;
        for (other, that) in cpus.iter_mut().enumerate() {
            let mine = done.iter();
            let mine = mine.filter(|p| p.reach == Reach::Inner || other == cpu);
            let mut dropped = Vec::new();
            for p in mine {
                dropped.extend(that.drop_named(p));
            }
            let broadcast = done.iter().any(|p| p.reach == Reach::Inner);
            if other == cpu {
                that.pipeline.extend(dropped);
            } else if broadcast {
                that.stores_in_flight =
                    self.repeats && !that.stores_in_flight && !dropped.is_empty();
            }
        }
    }
}

fn tag_under(tcr: u64, ttbr0: u64) -> u16 {
    assert_eq!(ttbr0 & 1, 0, "CnP");
    match tcr & (TCR_A1 | TCR_AS) {
        0 => (ttbr0 >> 48) as u16 & 0xff,
        TCR_AS => (ttbr0 >> 48) as u16,
        // TTBR1_EL1's is 0.
        _ => 0,
    }
}

impl Cpu {
    fn tag(&self, ttbr0: u64) -> u16 {
        tag_under(*self.tcr.last().unwrap(), ttbr0)
    }

    fn cache_page(&mut self, new: Cached, born: Born) {
        for other in self.pages.keys() {
            let meets = other.tag.is_none() || new.tag.is_none() || other.tag == new.tag;
            let conflict = other.shares_addresses(&new) && meets && other.leaf != new.leaf;
            assert!(!conflict, "TLB conflict: {other:?} and {new:?}");
        }
        self.pages.entry(new).or_insert(born);
    }

    fn cache_table(&mut self, new: CachedTable, now: u64) {
        for other in self.tables.keys() {
            let same = (other.tag, other.region) == (new.tag, new.region);
            let conflict = same && other.table != new.table;
            assert!(!conflict, "TLB conflict: {other:?} and {new:?}");
        }
        self.tables.entry(new).or_insert(now);
    }

    fn drop_named(&mut self, pending: &Pending) -> Vec<Cached> {
        let Pending { operation, at, .. } = *pending;
        let mut dropped = Vec::new();
        self.pages.retain(|cached, born| {
            let old = if names_tables(&operation) {
                born.through
            } else {
                born.at
            };
            let goes = old <= at && names_page(&operation, cached);
            dropped.extend(goes.then_some(*cached));
            !goes
        });
        self.tables
            .retain(|cached, born| !(*born <= at && names_table(&operation, cached)));
        dropped
    }
}

/// The addresses that a register names, decoded as the manual has it.
fn addresses(operation: &Tlbi) -> (u64, u64) {
    let operand = operation.operand();
    let extended = |value: u64, bits: u32| ((value << (64 - bits)) as i64 >> (64 - bits)) as u64;
    match operation {
        Tlbi::Range(..) => {
            let (tg, scale, num) = (operand >> 46 & 3, operand >> 44 & 3, operand >> 39 & 31);
            assert_eq!((tg, operand >> 37 & 3), (1, 0), "TG or TTL");
            let start = extended(operand & ((1 << 37) - 1), 37) << 12;
            (start, ((num + 1) << (5 * scale + 1)) << 12)
        }
        _ => {
            assert_eq!(operand >> 44 & 0xf, 0, "TTL");
            (extended(operand & ((1 << 44) - 1), 44) << 12, 4096)
        }
    }
}

fn tag_of(operation: &Tlbi) -> u16 {
    (operation.operand() >> 48) as u16
}

fn names_page(operation: &Tlbi, cached: &Cached) -> bool {
    let of_tag = |tag: u16| cached.tag.is_none_or(|other| other == tag);
    match operation {
        Tlbi::All => true,
        Tlbi::Tag(_) => cached.tag == Some(tag_of(operation)),
        Tlbi::Page(tag, ..) | Tlbi::Range(tag, ..) => {
            let (start, bytes) = addresses(operation);
            let first = cached.page.address() as u64;
            let meets = start < first + cached.leaf.bytes() as u64 && first < start + bytes;
            meets && (tag.is_none() || of_tag(tag_of(operation)))
        }
    }
}

fn names_tables(operation: &Tlbi) -> bool {
    !matches!(
        operation,
        Tlbi::Page(_, _, Depth::Leaf) | Tlbi::Range(_, _, Depth::Leaf)
    )
}

fn names_table(operation: &Tlbi, cached: &CachedTable) -> bool {
    match operation {
        _ if !names_tables(operation) => false,
        Tlbi::All => true,
        Tlbi::Tag(_) => cached.tag == tag_of(operation),
        Tlbi::Page(tag, ..) | Tlbi::Range(tag, ..) => {
            let (start, bytes) = addresses(operation);
            let first = Page {
                region: cached.region,
                index: 0,
            }
            .address() as u64;
            let meets = start < first + super::memory::REGION_BYTES as u64 && first < start + bytes;
            meets && (tag.is_none() || cached.tag == tag_of(operation))
        }
    }
}

/// One CPU of a machine.
#[derive(Clone, Copy)]
pub struct On<'a> {
    machine: &'a Machine,
    cpu: usize,
}

impl On<'_> {
    fn begin(&self) {
        self.machine.between(self.cpu);
        self.machine.step();
    }

    fn with<R>(&self, act: impl FnOnce(&mut Cpu) -> R) -> R {
        act(&mut self.machine.cpus.borrow_mut()[self.cpu])
    }
}

impl Port for On<'_> {
    fn dsb(&self, kind: Dsb) {
        let (machine, cpu) = (self.machine, self.cpu);
        self.begin();
        match kind {
            Dsb::Full => machine.complete(cpu, |_| true),
            Dsb::Own => machine.complete(cpu, |reach| reach == Reach::Own),
            // Not both kinds of access: it completes no TLBI (D8.17.8).
            Dsb::Stores => {}
        }
        // Between the TLBI and here walks may have read what is not visible yet.
        machine.step();
        let mut memory = machine.memory.borrow_mut();
        let settled = match kind {
            Dsb::Own => memory.settle(cpu, |old| old.is_by(cpu)),
            // What this CPU has seen of others' stores is visible to all (the memory is multi-copy atomic), but only what orders loads orders it before what follows.
            Dsb::Full | Dsb::Stores => {
                let is_meant = |old: &Old| match kind {
                    Dsb::Full => old.is_known_to(cpu),
                    _ => old.is_by(cpu),
                };
                let everywhere = (0..CPUS).map(|other| memory.settle(other, is_meant));
                everywhere.collect::<Vec<_>>()[cpu]
            }
        };
        drop(memory);
        self.with(|this| this.unsynchronised |= settled);
        machine.step();
    }

    fn isb(&self) {
        self.begin();
        self.with(|this| {
            this.ttbr0.drain(..this.ttbr0.len() - 1);
            this.tcr.drain(..this.tcr.len() - 1);
            this.pipeline.clear();
            this.unsynchronised = false;
        });
        self.machine.step();
    }

    unsafe fn tlbi(&self, reach: Reach, operation: Tlbi) {
        self.begin();
        let at = *self.machine.now.borrow() - 1;
        self.with(|this| {
            this.pending.push(Pending {
                reach,
                operation,
                at,
            })
        });
        self.machine.step();
    }

    fn read_ttbr0(&self) -> u64 {
        self.begin();
        self.with(|this| *this.ttbr0.last().unwrap())
    }

    unsafe fn write_ttbr0(&self, value: u64) {
        self.begin();
        assert_eq!(value & 1, 0, "CnP");
        self.with(|this| {
            let tag = this.tag(value);
            assert_eq!(u64::from(tag), value >> 48, "a tag with too many bits");
            this.ttbr0.push(value);
        });
        self.machine.step();
    }

    fn read_tcr(&self) -> u64 {
        self.begin();
        self.with(|this| *this.tcr.last().unwrap())
    }

    unsafe fn write_tcr(&self, value: u64) {
        self.begin();
        let reserved = if self.machine.wide { 0 } else { TCR_AS };
        self.with(|this| {
            assert_eq!(
                (value ^ this.tcr.last().unwrap()) & !(TCR_A1 | TCR_AS),
                0,
                "bits that are somebody else's"
            );
            this.tcr.push(value & !reserved);
        });
        self.machine.step();
    }
}

impl Machine {
    /// The state that a loader leaves.
    pub fn leave(&self, cpu: usize, tcr: u64, ttbr0: u64) {
        let this = &mut self.cpus.borrow_mut()[cpu];
        (this.tcr, this.ttbr0) = (vec![tcr], vec![ttbr0]);
    }
}
