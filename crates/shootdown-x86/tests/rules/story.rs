//! A kernel in small that keeps translations across switches: whatever it does, no translation that an
//! access may use contradicts the page tables.

use proptest::prelude::*;
use shootdown_x86::Tlb;
use shootdown_x86::tlb::{Depth, InvpcidKind, Pcid, TagEntries};

use super::contract::{any_page, any_processor, start};
use super::processor::Processor;
use super::tables::{KERNEL, PAGES, Page, Tables, all_pages};

/// Spaces; root 0 has no user pages of its own that anybody uses, it is the kernel's.
const SPACES: usize = 4;
const ROOTS: usize = SPACES + 1;
/// Fewer tags than spaces.
const SLOTS: usize = 3;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Load a space.
    Switch(usize),
    /// Load the kernel's root.
    Away,
    /// Change a page of a space or of the kernel, and flush it where it is loaded.
    Change(usize, Page, Option<u32>),
    /// Free a user region's table, or give it a new one if it has none.
    Table(usize, usize),
    /// Unmap all user pages of a space, then free their tables: their directory is gone, as one page of 1 GiB.
    Directory(usize),
    /// Flush one tag, loaded or not, and trust it from then on.
    FlushTag(usize),
    /// Flush a page under one tag after changing it.
    ChangeTagged(usize, Page, u32),
    /// Flush all tags and trust them.
    FlushTags,
    /// The same, global translations too.
    FlushAll,
    /// Go offline and come back.
    Restart,
}

/// What a tag holds: translations of this space, all of them true or perhaps not.
#[derive(Clone, Copy)]
struct Held {
    space: usize,
    is_true: bool,
}

pub struct Kernel<'a> {
    processor: &'a Processor,
    tlb: Tlb<&'a Processor>,
    slots: [Option<Held>; SLOTS],
    loaded: Option<(usize, usize)>,
    turn: usize,
}

impl<'a> Kernel<'a> {
    pub fn new(processor: &'a Processor) -> Self {
        Self::with(processor, start(processor))
    }

    pub fn with(processor: &'a Processor, tlb: Tlb<&'a Processor>) -> Self {
        Self {
            processor,
            tlb,
            slots: [None; SLOTS],
            loaded: None,
            turn: 0,
        }
    }

    pub fn take(&mut self, step: Step) {
        self.processor.begin();
        self.perform(step);
        self.check(step);
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Switch(space) => self.switch(space),
            Step::Away => {
                // SAFETY: emulated.
                unsafe { self.tlb.load_root(Tables::root_address(0)) };
                self.loaded = None;
            }
            Step::Change(space, page, frame) => {
                self.set(space, page, frame);
                if page.region == KERNEL || self.is_loaded(space) {
                    self.tlb.flush_page(page.address());
                }
                self.distrust(space, page.region);
            }
            Step::Table(space, region) => self.table(space, region),
            Step::Directory(space) => self.free_directory(space),
            Step::FlushTag(slot) => {
                if self.tlb.has_pcids() {
                    self.tlb.flush_tagged(InvpcidKind::Context(pcid_of(slot)));
                }
                self.trust(slot);
            }
            Step::ChangeTagged(slot, page, frame) => self.change_tagged(slot, page, frame),
            Step::FlushTags => {
                self.tlb.flush_tagged(InvpcidKind::AllNonGlobal);
                (0..SLOTS).for_each(|slot| self.trust(slot));
            }
            Step::FlushAll => {
                self.tlb.flush_all();
                (0..SLOTS).for_each(|slot| self.trust(slot));
            }
            Step::Restart => {
                // SAFETY: emulated, and started next.
                unsafe { self.tlb.stop() };
                // SAFETY: emulated.
                unsafe { self.tlb.start() };
                // SAFETY: emulated.
                unsafe { self.tlb.load_root(Tables::root_address(0)) };
                self.loaded = None;
                self.slots = [None; SLOTS];
            }
        }
    }

    fn table(&mut self, space: usize, region: usize) {
        let mut memory = self.processor.memory.borrow_mut();
        match memory.table_of(root_of(space), region) {
            Some(_) => memory.free(root_of(space), region),
            None => memory.link(root_of(space), region, 7000),
        }
        drop(memory);
        if self.is_loaded(space) {
            let first = Page { region, index: 0 };
            self.tlb
                .flush_pages(first.address(), 4096, PAGES, Depth::Tables);
        }
        self.distrust(space, region);
    }

    fn free_directory(&mut self, space: usize) {
        for page in all_pages().filter(|page| page.region != KERNEL) {
            self.set(space, page, None);
            if self.is_loaded(space) {
                self.tlb.flush_pages(page.address(), 4096, 1, Depth::Leaf);
            }
        }
        let mut memory = self.processor.memory.borrow_mut();
        (0..KERNEL).for_each(|region| memory.free(root_of(space), region));
        drop(memory);
        if self.is_loaded(space) {
            self.tlb.flush_pages(0, 1 << 30, 1, Depth::Tables);
        }
        self.distrust(space, 0);
    }

    fn change_tagged(&mut self, slot: usize, page: Page, frame: u32) {
        let Some(Held { space, .. }) = self.slots[slot].filter(|_| page.region != KERNEL) else {
            return;
        };
        self.set(space, page, Some(frame));
        if self.tlb.has_pcids() {
            let kind = InvpcidKind::Page(pcid_of(slot), page.address());
            self.tlb.flush_tagged(kind);
        } else if self.is_loaded(space) {
            self.tlb.flush_page(page.address());
        }
    }

    fn switch(&mut self, space: usize) {
        let mut slots = self.slots.iter();
        let found = slots.position(|slot| slot.is_some_and(|held| held.space == space));
        let slot = found.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % SLOTS;
            self.turn
        });
        let entries = match self.slots[slot] {
            Some(held) if held.space == space && held.is_true => TagEntries::Keep,
            _ => TagEntries::Drop,
        };
        let root = Tables::root_address(root_of(space));
        // SAFETY: emulated.
        unsafe { self.tlb.load_tagged_root(root, pcid_of(slot), entries) };
        let is_true = true;
        self.slots[slot] = Some(Held { space, is_true });
        self.loaded = Some((slot, space));
    }

    /// What the tag held is dropped.
    fn trust(&mut self, slot: usize) {
        if let Some(held) = &mut self.slots[slot] {
            held.is_true = true;
        }
    }

    fn is_loaded(&self, space: usize) -> bool {
        self.loaded.is_some_and(|(_, loaded)| loaded == space)
    }

    fn set(&self, space: usize, page: Page, frame: Option<u32>) {
        let mut memory = self.processor.memory.borrow_mut();
        memory.set(root_of(space), page, frame);
    }

    /// After a change that was flushed under the loaded tag only. Pages of the kernel are in every
    /// space, and in tags where they are not global.
    fn distrust(&mut self, space: usize, region: usize) {
        let loaded = self.loaded.map(|(slot, _)| slot);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(held) = slot
                && (region == KERNEL || held.space == space)
                && loaded != Some(index)
            {
                held.is_true = false;
            }
        }
    }

    /// The page tables decide: for what is usable now, and for what each trusted tag holds.
    fn check(&self, step: Step) {
        let root = self.loaded.map_or(0, |(_, space)| root_of(space));
        assert_eq!(self.processor.loaded_root(), root);
        let memory = self.processor.memory.borrow();
        for cached in self.processor.usable() {
            let truth = memory.leaf(root, cached.page);
            assert_eq!(truth, Some(cached.leaf), "stale {cached:?} after {step:?}");
        }
        if !self.tlb.has_pcids() {
            return;
        }
        for cached in self.processor.caches().pages.keys() {
            let held = (0..SLOTS).find(|&slot| cached.tag == Some(pcid_of(slot).as_u16()));
            let held = held.and_then(|slot| self.slots[slot]);
            if let Some(Held { space, .. }) = held.filter(|held| held.is_true) {
                let truth = memory.leaf(root_of(space), cached.page);
                assert_eq!(truth, Some(cached.leaf), "stale {cached:?} after {step:?}");
            }
        }
    }
}

fn root_of(space: usize) -> usize {
    space + 1
}

fn pcid_of(slot: usize) -> Pcid {
    Pcid::new(slot as u16 + 1).unwrap()
}

fn any_step() -> impl Strategy<Value = Step> {
    let frame = || proptest::option::of(0..50u32);
    let changes = (0..SPACES, any_page(), frame());
    prop_oneof![
        8 => (0..SPACES).prop_map(Step::Switch),
        1 => Just(Step::Away),
        6 => changes.prop_map(|(space, page, frame)| Step::Change(space, page, frame)),
        2 => (0..SPACES, 0..KERNEL).prop_map(|(space, region)| Step::Table(space, region)),
        1 => (0..SPACES).prop_map(Step::Directory),
        1 => (0..SLOTS).prop_map(Step::FlushTag),
        2 => (0..SLOTS, any_page(), 0..50u32).prop_map(|(s, p, f)| Step::ChangeTagged(s, p, f)),
        1 => Just(Step::FlushTags),
        1 => Just(Step::FlushAll),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(super::config())]
    #[test]
    fn no_translation_contradicts_the_page_tables(
        processor in any_processor(ROOTS),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut kernel = Kernel::new(&processor);
        for step in steps {
            kernel.take(step);
        }
    }
}
