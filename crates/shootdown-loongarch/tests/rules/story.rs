//! A kernel in small that keeps translations across switches.

use std::cell::RefMut;
use std::collections::BTreeSet;

use shootdown_loongarch::Tlb;
use shootdown_loongarch::tlb::{Asid, AsidWidth, Pages, Port, TagEntries};

use super::others::{Change, Others};
use super::processor::Processor;
use super::tables::{BASE, Directory, KERNEL, Leaf, PAGES, Page, Tables};

/// Roots 1 and 2 are spaces; root 0 is the kernel's, with user pages that nobody uses.
const SPACES: [usize; 2] = [1, 2];
/// Frames that a space's pages change to.
const NEW: u32 = 50;

#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bits of tags, and how many tags the kernel uses at most.
    pub bits: u32,
    pub slots: usize,
    /// The kernel's pages are global, both of each pair.
    pub is_global: bool,
}

impl Config {
    pub fn processor(self) -> Processor {
        Processor::new(self.bits, self.bits, Tables::new(3, self.is_global))
    }

    pub fn all() -> impl Iterator<Item = Self> {
        let tags = [(0, 0), (1, 0), (2, 1), (10, 2)];
        tags.into_iter().flat_map(|(bits, slots)| {
            [false, true].map(|is_global| Self {
                bits,
                slots,
                is_global,
            })
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Load a space.
    Switch(usize),
    /// Load the kernel's root, without a tag.
    Away,
    /// Change a page of a space or of the kernel, and flush it where it is loaded.
    Change(usize, Page, Option<u32>),
    /// Map a page if it is not, and flush nothing.
    Appear(usize, Page),
    /// An access to the page faults for what is cached.
    Fault(Page),
    /// Give a user region another table, unmapping all first, and free the old one.
    Table(usize, usize),
    /// Give the first user regions, so many of them, a huge page each, unmapping all first; or another one.
    Huge(usize, usize),
    /// Give the kernel's region another table; flush everything, or all its pages.
    KernelTable(bool),
    /// Change two pages in a row of a space or of the kernel, which are not in one pair, and flush them.
    Range(usize, usize),
    /// Flush everything, and trust all tags.
    All,
    /// Go offline and come back.
    Restart,
}

/// Every step, for two pages of each kind that are not in one pair.
pub fn all_steps() -> Vec<Step> {
    let page = |region, index| Page { region, index };
    let mut steps = vec![Step::Away, Step::Table(1, 0)];
    steps.extend([1, 2].map(|count| Step::Huge(1, count)));
    steps.extend(SPACES.map(Step::Switch));
    for place in [page(0, 0), page(0, 3), page(KERNEL, 1)] {
        steps.push(Step::Change(1, place, Some(NEW)));
        steps.push(Step::Change(1, place, None));
        steps.push(Step::Appear(1, place));
        steps.push(Step::Fault(place));
    }
    steps.extend([Step::Table(2, 1), Step::Change(2, page(1, 2), None)]);
    steps.extend([Step::KernelTable(false), Step::KernelTable(true)]);
    steps.extend([0, KERNEL].map(|region| Step::Range(1, region)));
    steps.extend([Step::All, Step::Restart]);
    steps
}

/// What a tag holds: translations of this space, all of them true or perhaps not.
#[derive(Clone, Copy, Debug)]
struct Held {
    space: usize,
    is_true: bool,
}

pub struct Kernel<'a> {
    config: Config,
    processor: &'a Processor,
    tlb: Tlb<&'a Processor>,
    slots: [Option<Held>; 2],
    /// The space, and the slot if it has one.
    loaded: Option<(usize, Option<usize>)>,
    turn: usize,
    /// Pages of spaces (the kernel's: of 0) that have become valid, and perhaps not for every cache.
    appeared: BTreeSet<(usize, Page)>,
    past: Vec<Step>,
}

fn asid(slot: Option<usize>) -> Asid {
    let number = slot.map_or(0, |slot| slot as u16 + 1);
    Asid::new(number).unwrap()
}

fn whole(region: usize) -> Pages {
    Pages::new(Page { region, index: 0 }.address(), BASE, PAGES)
}

impl<'a> Kernel<'a> {
    /// Finds out about tags, and comes online.
    pub fn new(processor: &'a Processor, config: Config) -> Self {
        let width = Tlb::detect_width(&processor);
        assert_eq!(width, AsidWidth::new(config.bits));
        // SAFETY: the width is the processor's.
        let tlb = unsafe { Tlb::with_port(processor, BASE, width) };
        let mut new = Self {
            config,
            processor,
            tlb,
            slots: [None; 2],
            loaded: None,
            turn: 0,
            appeared: BTreeSet::new(),
            past: Vec::new(),
        };
        new.take(Step::Restart);
        new
    }

    pub fn take(&mut self, step: Step) {
        self.past.push(step);
        self.processor.walk();
        self.perform(step);
        self.answer();
        self.check();
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Switch(space) => self.switch(space),
            Step::Away => self.load(0, None, TagEntries::Drop),
            Step::Change(space, page, frame) => self.change(space, page, frame),
            Step::Appear(space, page) => self.appear(space, page),
            Step::Fault(page) => self.fault(page),
            Step::Table(space, region) => {
                self.replace(space, region, Directory::EMPTY);
                self.processor.memory.borrow_mut().link(space, region, 500);
                self.flush_changed(space, whole(region), false);
            }
            Step::Huge(space, count) => self.huge(space, count),
            Step::KernelTable(at_once) => {
                let old = self.processor.memory.borrow().directory(0, KERNEL).now();
                self.processor.memory.borrow_mut().link_kernel(2000);
                if at_once {
                    self.tlb.flush_all();
                } else {
                    self.tlb.flush_pages(whole(KERNEL));
                    self.distrust_unloaded(|_| true);
                }
                self.forget_appeared(0, |page| page.region == KERNEL);
                self.processor.memory.borrow_mut().free(old);
            }
            Step::Range(space, region) => self.range(space, region),
            Step::All => {
                self.tlb.flush_all();
                let held = self.slots.iter_mut().flatten();
                held.for_each(|held| held.is_true = true);
            }
            Step::Restart => {
                let irqs = self.processor.irq_save();
                // SAFETY: 1. interrupts are off. 2. none is, as far as the kernel knows.
                unsafe { self.tlb.start() };
                // SAFETY: 1. of the `irq_save` above.
                unsafe { self.processor.irq_restore(irqs) };
                self.slots = [None; 2];
                self.load(0, None, TagEntries::Drop);
            }
        }
    }

    fn load(&mut self, space: usize, slot: Option<usize>, entries: TagEntries) {
        let root = Tables::root_address(space);
        match slot {
            // SAFETY: emulated; what is kept is true as far as the kernel knows.
            Some(_) => unsafe { self.tlb.load_tagged_root(root, asid(slot), entries) },
            // SAFETY: emulated.
            None => unsafe { self.tlb.load_root(root) },
        }
        self.loaded = (space != 0).then_some((space, slot));
    }

    fn switch(&mut self, space: usize) {
        let is_its = |held: &Option<Held>| held.is_some_and(|held| held.space == space);
        let slots = self.config.slots;
        let slot = self.slots.iter().position(is_its).or_else(|| {
            self.turn += 1;
            (slots > 0).then(|| self.turn % slots)
        });
        let Some(index) = slot else {
            return self.load(space, None, TagEntries::Drop);
        };
        let held = self.slots[index].filter(|held| held.space == space);
        let entries = match held.is_some_and(|held| held.is_true) {
            true => TagEntries::Keep,
            false => TagEntries::Drop,
        };
        self.load(space, slot, entries);
        self.slots[index] = Some(Held {
            space,
            is_true: true,
        });
    }

    fn is_loaded(&self, space: usize) -> bool {
        self.loaded.is_some_and(|(loaded, _)| loaded == space)
    }

    /// Tags that are not loaded have missed something, if their space has.
    fn distrust_unloaded(&mut self, has_missed: impl Fn(usize) -> bool) {
        let loaded = self.loaded.and_then(|(_, slot)| slot);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(held) = slot.as_mut().filter(|held| has_missed(held.space)) {
                held.is_true &= loaded == Some(index);
            }
        }
    }

    fn forget_appeared(&mut self, space: usize, is_clean: impl Fn(Page) -> bool) {
        self.appeared
            .retain(|&(other, page)| other != space || !is_clean(page));
    }

    /// Flushes pages of one pair by themselves, else perhaps more.
    fn flush_or_all(&self, pages: Pages, all: fn(&Tlb<&'a Processor>)) {
        if pages.entry_count(BASE) == 1 {
            self.tlb.flush_pages(pages);
        } else {
            all(&self.tlb);
        }
    }

    /// Flushes here what has changed, and counts those out that do not hear of it.
    fn flush_changed(&mut self, space: usize, pages: Pages, is_kernel: bool) {
        if is_kernel {
            self.flush_or_all(pages, Tlb::flush_all);
            if !self.config.is_global {
                self.distrust_unloaded(|_| true);
            }
            return;
        }
        if self.is_loaded(space) {
            self.flush_or_all(pages, Tlb::flush_space);
        }
        self.distrust_unloaded(|other| other == space);
    }

    fn change(&mut self, space: usize, page: Page, frame: Option<u32>) {
        self.processor.memory.borrow_mut().set(space, page, frame);
        let is_kernel = page.region == KERNEL;
        self.flush_changed(space, Pages::one(page.address(), BASE), is_kernel);
        let owner = if is_kernel { 0 } else { space };
        self.forget_appeared(owner, |other| other == page);
    }

    fn appear(&mut self, space: usize, page: Page) {
        let mut memory = self.processor.memory.borrow_mut();
        if memory.leaf(space, page).frame.is_none() && memory.has_table(space, page.region) {
            memory.set(space, page, Some(NEW + 1));
            let owner = if page.region == KERNEL { 0 } else { space };
            self.appeared.insert((owner, page));
        }
    }

    fn fault(&mut self, page: Page) {
        let root = self.processor.loaded_root();
        let is_valid = self.processor.memory.borrow().leaf(root, page).frame;
        if is_valid.is_none() {
            return;
        }
        self.tlb.flush_faulted(page.address() + 8);
        if self.others().are_changing(page.region) {
            return;
        }
        for cached in self.processor.usable() {
            let mut pages = cached.pages();
            let is_left = pages.any(|(other, leaf)| other == page && leaf.frame.is_none());
            assert!(!is_left, "faults again: {cached:?} after {:?}", self.past);
        }
    }

    /// Gives a user region another directory entry and frees the table that it had.
    fn replace(&mut self, space: usize, region: usize, new: Directory) {
        let old = self
            .processor
            .memory
            .borrow()
            .directory(space, region)
            .now();
        self.processor.memory.borrow_mut().store(space, region, new);
        let pages = whole(region);
        self.flush_changed(space, pages, false);
        self.forget_appeared(space, |page| page.region == region);
        self.processor.memory.borrow_mut().free(old);
    }

    /// A huge page changes as one; one that becomes huge takes the place of empty small ones, which are cached.
    fn huge(&mut self, space: usize, count: usize) {
        for region in 0..count {
            let directory = |kernel: &Self| {
                let memory = kernel.processor.memory.borrow();
                memory.directory(space, region).now()
            };
            let huge = |frame| {
                Directory::Huge(Leaf {
                    frame: Some(frame),
                    global: false,
                })
            };
            if let Directory::Huge(leaf) = directory(self) {
                let new = huge(leaf.frame.map_or(0, |frame| frame + 1));
                self.processor.memory.borrow_mut().store(space, region, new);
            } else {
                self.replace(space, region, Directory::EMPTY);
                self.replace(space, region, huge(600));
            }
        }
        let (region, index) = (0, 3);
        let address = Page { region, index }.address();
        if self.is_loaded(space) {
            self.tlb
                .flush_pages(Pages::new(address, BASE.huge(), count));
        }
        self.distrust_unloaded(|other| other == space);
    }

    fn range(&mut self, space: usize, region: usize) {
        let pages = [1, 2].map(|index| Page { region, index });
        for page in pages {
            let mut memory = self.processor.memory.borrow_mut();
            memory.set(space, page, Some(NEW + 2));
        }
        let is_kernel = region == KERNEL;
        if is_kernel || self.is_loaded(space) {
            self.tlb
                .flush_pages(Pages::new(pages[0].address(), BASE, 2));
        }
        if !(is_kernel && self.config.is_global) {
            self.distrust_unloaded(|other| is_kernel || other == space);
        }
        let owner = if is_kernel { 0 } else { space };
        self.forget_appeared(owner, |page| pages.contains(&page));
    }

    fn others(&self) -> RefMut<'a, Others> {
        self.processor.others.borrow_mut()
    }

    /// The interrupts of other CPUs, which come once they are on.
    fn answer(&mut self) {
        loop {
            let next = self.others().next_change();
            let Some(change) = next else {
                return;
            };
            self.answer_one(change);
            self.others().flushed(change);
        }
    }

    fn answer_one(&mut self, change: Change) {
        let Change {
            space,
            region,
            what,
        } = change;
        let pages = match what {
            Ok(page) => Pages::one(page.address(), BASE),
            Err(_) => whole(region),
        };
        self.flush_changed(space, pages, region == KERNEL);
        let owner = if region == KERNEL { 0 } else { space };
        self.forget_appeared(owner, |page| match what {
            Ok(changed) => page == changed,
            Err(_) => page.region == region,
        });
    }

    /// Nothing that an access may use contradicts what the program has stored.
    fn check(&self) {
        let (processor, past) = (self.processor, &self.past);
        let config = self.config;
        let usable = processor.usable();
        let mistake = processor.mistake();
        assert_eq!(mistake, None, "{config:?} {past:?}");
        assert!(processor.has_interrupts_on(), "interrupts were left off");
        let root = processor.loaded_root();
        let memory = processor.memory.borrow();
        for cached in usable {
            for (page, leaf) in cached.pages() {
                let owner = if page.region == KERNEL { 0 } else { root };
                let is_true = leaf.frame == memory.leaf(root, page).frame;
                let may_fault = leaf.frame.is_none() && self.appeared.contains(&(owner, page));
                assert!(
                    is_true || may_fault,
                    "stale {cached:?}: {config:?} {past:?}"
                );
            }
        }
    }
}
