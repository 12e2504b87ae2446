//! A kernel in small that keeps translations across switches, taking random steps, as another hart does.

use shootdown_riscv::tlb::{Access, Depth, TagEntries};
use shootdown_riscv::{Asid, AsidBits, Features, Processor, Tlb};

use super::hart::{CIP_1200, Hart, SOUND};
use super::memory::{Entry, KERNEL, Memory, PAGES, Page, Place, REGION_BYTES, all_pages};
use super::other::{Change, Dice, Other};

/// Root 0 is the kernel's.
const SPACES: usize = 3;
/// Fewer tags than spaces.
const SLOTS: usize = 2;
/// V, R; A: what the tables say where a page is there.
const READABLE: u64 = 1 << 0 | 1 << 1;
const ACCESSED: u64 = 1 << 6;

/// What a tag holds: translations of this space, none of them older than a flush that it needed, or perhaps some.
#[derive(Clone, Copy)]
struct Held {
    space: usize,
    is_true: bool,
}

struct Kernel<'a> {
    hart: &'a Hart,
    tlb: Tlb<&'a Hart>,
    slots: Vec<Option<Held>>,
    /// The space, and its slot if there are tags.
    loaded: Option<(usize, Option<usize>)>,
    turn: usize,
    frame: u32,
}

impl<'a> Kernel<'a> {
    fn new(hart: &'a Hart, ceiling: usize) -> Self {
        let tlb = hart.tlb().with_ceiling(ceiling);
        Self {
            hart,
            tlb,
            slots: vec![None; SLOTS.min(tlb.asid_bits().tags())],
            loaded: None,
            turn: 0,
            frame: 10_000,
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        self.hart.begin();
        let (space, page) = (dice.below(SPACES), dice.page());
        match dice.below(20) {
            0..=4 => self.switch(space),
            5 => self.away(),
            6..=8 => self.change(space, page, dice.below(3) == 0),
            9 => self.change_pages(space, page, dice.below(PAGES) + 1),
            10 => self.change_space(space),
            11..=12 => self.change_region(space, page.region, dice.below(2) == 0),
            13 => self.link_lazily(space, page),
            14 => self.map_lazily(space, page),
            15 => self.replace_kernel_table(),
            16..=17 => self.change_megapages(space, dice.below(3) == 0),
            18 => self.flush_all(),
            _ => self.fault(page),
        }
        self.take_interrupts();
        self.check();
    }

    fn switch(&mut self, space: usize) {
        self.hart.other.borrow_mut().join(root_of(space));
        self.learn();
        self.load(space);
        let mut other = self.hart.other.borrow_mut();
        other.leave_all_but(Some(root_of(space)));
    }

    fn load(&mut self, space: usize) {
        let root = Memory::root_address(root_of(space));
        if self.slots.is_empty() {
            // SAFETY: emulated. Without tags what is to be kept is not asked.
            unsafe {
                self.tlb
                    .load_tagged_root(root, asid_of(1), TagEntries::Keep)
            };
            self.loaded = Some((space, None));
            return;
        }
        let mut slots = self.slots.iter();
        let found = slots.position(|slot| slot.is_some_and(|held| held.space == space));
        let slot = found.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % self.slots.len();
            self.turn
        });
        let entries = match self.slots[slot] {
            Some(held) if held.space == space && held.is_true => TagEntries::Keep,
            _ => TagEntries::Drop,
        };
        // SAFETY: emulated.
        unsafe { self.tlb.load_tagged_root(root, asid_of(slot), entries) };
        let is_true = true;
        self.slots[slot] = Some(Held { space, is_true });
        self.loaded = Some((space, Some(slot)));
    }

    fn away(&mut self) {
        // SAFETY: emulated.
        unsafe { self.tlb.load_root(Memory::root_address(0)) };
        self.loaded = None;
        self.hart.other.borrow_mut().leave_all_but(None);
    }

    /// Sees what others have stored, and which spaces they have changed that this hart had not joined.
    fn learn(&mut self) {
        self.hart.memory.borrow_mut().see_all();
        let changed = self.hart.other.borrow_mut().take_changed();
        changed
            .into_iter()
            .for_each(|root| self.distrust_others(root - 1, 0));
    }

    /// Interrupts are on: does what others ask, until there is no more.
    fn take_interrupts(&mut self) {
        loop {
            self.learn();
            let next = self.hart.other.borrow_mut().next_request();
            let Some(request) = next else {
                return;
            };
            let (address, region) = (request.page.address(), request.page.region);
            if region != KERNEL && !self.is_loaded(request.root - 1) {
                self.distrust_others(request.root - 1, region);
            } else {
                let (stride, depth) = match request.change {
                    Change::Leaf => (4096, Depth::Leaf),
                    Change::Megapage => (REGION_BYTES, Depth::Leaf),
                    Change::Tables => (4096, Depth::Tables),
                };
                self.tlb.flush_pages(address, stride, 1, depth);
            }
            self.hart.other.borrow_mut().done(request);
        }
    }

    fn flush_all(&mut self) {
        self.tlb.flush_all();
        for held in self.slots.iter_mut().flatten() {
            held.is_true = true;
        }
    }

    /// Another frame, or none, for a page; flushed where it is loaded. Pages of the kernel are global: other tags need nothing.
    fn change(&mut self, space: usize, page: Page, unmaps: bool) {
        let entry = if unmaps {
            Entry::Invalid
        } else {
            self.new_frame()
        };
        if !self.set(space, page, entry) {
            return;
        }
        if page.region == KERNEL || self.is_loaded(space) {
            self.tlb.flush_page(page.address());
            self.expect(page, Depth::Leaf);
        }
        self.distrust_others(space, page.region);
    }

    /// Some pages in a row, and one flush for all of them.
    fn change_pages(&mut self, space: usize, first: Page, count: usize) {
        let pages =
            (first.index..PAGES.min(first.index + count)).map(|index| Page { index, ..first });
        for page in pages.clone() {
            let entry = self.new_frame();
            self.set(space, page, entry);
        }
        if first.region == KERNEL || self.is_loaded(space) {
            let count = pages.clone().count();
            self.tlb
                .flush_pages(first.address(), 4096, count, Depth::Leaf);
            if self.region_has_table(space, first.region) {
                pages.for_each(|page| self.expect(page, Depth::Leaf));
            }
        }
        self.distrust_others(space, first.region);
    }

    /// All user pages of a space, and one flush of the tag.
    fn change_space(&mut self, space: usize) {
        for page in user_pages() {
            let entry = self.new_frame();
            self.set(space, page, entry);
        }
        if self.is_loaded(space) {
            self.tlb.flush_loaded_tag();
            user_pages().for_each(|page| self.expect(page, Depth::Tables));
        }
        self.distrust_others(space, 0);
    }

    /// Megapages in a row, and one flush for all of them.
    fn change_megapages(&mut self, space: usize, unmaps: bool) {
        let place = |region| Place::Top(root_of(space), region);
        let memory = self.hart.memory.borrow();
        let is_megapage = |&region: &usize| matches!(memory.get(place(region)), Entry::Frame(_));
        let Some(first) = (0..KERNEL).find(is_megapage) else {
            return;
        };
        let regions: Vec<_> = (first..KERNEL).take_while(is_megapage).collect();
        drop(memory);
        for &region in &regions {
            let entry = if unmaps {
                Entry::Invalid
            } else {
                self.new_frame()
            };
            self.hart.memory.borrow_mut().store(place(region), entry);
        }
        if self.is_loaded(space) {
            let (start, count) = (first * REGION_BYTES, regions.len());
            self.tlb
                .flush_pages(start, REGION_BYTES, count, Depth::Leaf);
            let pages = user_pages().filter(|page| regions.contains(&page.region));
            pages.for_each(|page| self.expect(page, Depth::Leaf));
        }
        self.distrust_others(space, first);
    }

    /// A user region gets a table, a megapage or nothing; flushed as tables are, and its table freed.
    fn change_region(&mut self, space: usize, region: usize, to_megapage: bool) {
        if region == KERNEL {
            return;
        }
        let place = Place::Top(root_of(space), region);
        let before = self.hart.memory.borrow().get(place);
        let new = match before {
            Entry::Frame(_) if to_megapage => Entry::Invalid,
            _ if to_megapage => self.new_frame(),
            Entry::Table(_) => Entry::Invalid,
            _ => Entry::Table(self.new_table(region)),
        };
        self.hart.memory.borrow_mut().store(place, new);
        if self.is_loaded(space) {
            self.flush_tables(region);
        }
        if let Entry::Table(table) = before {
            self.hart.memory.borrow_mut().free(table);
        }
        self.distrust_others(space, region);
    }

    /// The kernel's table is replaced under all roots, and freed. One flush drops it under every tag.
    fn replace_kernel_table(&mut self) {
        let new = self.new_table(KERNEL);
        let mut memory = self.hart.memory.borrow_mut();
        let before = memory.get(Place::Top(0, KERNEL));
        for root in 0..memory.roots() {
            memory.store(Place::Top(root, KERNEL), Entry::Table(new));
        }
        drop(memory);
        self.flush_tables(KERNEL);
        let Entry::Table(table) = before else {
            unreachable!()
        };
        self.hart.memory.borrow_mut().free(table);
    }

    fn flush_tables(&self, region: usize) {
        let first = Page { region, index: 0 };
        self.tlb
            .flush_pages(first.address(), 4096, 1, Depth::Tables);
        let pages = all_pages().filter(|page| page.region == region);
        pages.for_each(|page| self.expect(page, Depth::Tables));
    }

    /// A region gets a table, and nobody is told; then one of its pages faults.
    fn link_lazily(&mut self, space: usize, page: Page) {
        let place = Place::Top(root_of(space), page.region);
        if self.hart.memory.borrow().get(place) == Entry::Invalid {
            let new = Entry::Table(self.new_table(page.region));
            self.hart.memory.borrow_mut().store(place, new);
            self.fault(page);
        }
    }

    /// A page becomes present, and nobody is told.
    fn map_lazily(&mut self, space: usize, page: Page) {
        if self.hart.memory.borrow().truth(root_of(space), page) == Entry::Invalid {
            let entry = self.new_frame();
            self.set(space, page, entry);
        }
    }

    /// A page faults under the loaded root, perhaps for no reason.
    fn fault(&mut self, page: Page) {
        let truth = self.hart.memory.borrow().truth(self.loaded_root(), page);
        let is_marked = !self.hart.features().has(Features::SVADU);
        let leaf = match truth {
            Entry::Invalid => 0,
            _ if is_marked => READABLE | ACCESSED,
            _ => READABLE,
        };
        let retried = self.tlb.retry(leaf, Access::Read);
        assert_eq!(retried, truth != Entry::Invalid);
        if retried {
            self.expect(page, Depth::Tables);
        }
    }

    /// A frame, the first of as many as a table has.
    fn new_frame(&mut self) -> Entry {
        self.frame += PAGES as u32;
        Entry::Frame(self.frame)
    }

    fn new_table(&mut self, region: usize) -> usize {
        self.frame += PAGES as u32;
        let mut memory = self.hart.memory.borrow_mut();
        memory.add_table(region, self.frame)
    }

    /// False if the region has no table.
    fn set(&self, space: usize, page: Page, entry: Entry) -> bool {
        let mut memory = self.hart.memory.borrow_mut();
        let place = memory.leaf_place(root_of(space), page);
        place.map(|place| memory.store(place, entry)).is_some()
    }

    fn region_has_table(&self, space: usize, region: usize) -> bool {
        let memory = self.hart.memory.borrow();
        let entry = memory.get(Place::Top(root_of(space), region));
        matches!(entry, Entry::Table(_))
    }

    fn is_loaded(&self, space: usize) -> bool {
        self.loaded.is_some_and(|(loaded, _)| loaded == space)
    }

    fn loaded_root(&self) -> usize {
        self.loaded.map_or(0, |(space, _)| root_of(space))
    }

    /// After a change of a space that was flushed under the loaded tag only.
    fn distrust_others(&mut self, space: usize, region: usize) {
        let loaded = self.loaded.and_then(|(_, slot)| slot);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let held = slot.as_mut().filter(|held| held.space == space);
            if let Some(held) = held.filter(|_| region != KERNEL && loaded != Some(index)) {
                held.is_true = false;
            }
        }
    }

    /// The page was flushed: nothing else is found by now, invalid or not, than the tables say; but for what another hart did meanwhile. A flush of leaves
    /// leaves that the region has no table.
    fn expect(&self, page: Page, flushed: Depth) {
        let memory = self.hart.memory.borrow();
        let is_asked = self.hart.other.borrow().has_request(page.region);
        if is_asked || memory.has_unseen(page.region) {
            return;
        }
        let truth = memory.truth(self.loaded_root(), page);
        drop(memory);
        let may_be_invalid = flushed == Depth::Leaf && self.hart.lacks_table(page.region);
        let usable = self.hart.usable(page);
        let is_expected =
            |&found: &Entry| found == truth || may_be_invalid && found == Entry::Invalid;
        assert!(
            usable.iter().all(is_expected),
            "{page:?} is {truth:?}, found {usable:?}"
        );
    }

    /// The tables decide: for what is usable now, and for what each trusted tag holds. A page that became present may still be missing.
    fn check(&self) {
        assert_eq!(self.hart.loaded_root(), self.loaded_root());
        let (pages, memory) = (self.hart.cached_pages(), self.hart.memory.borrow());
        for cached in pages.iter().filter(|cached| cached.entry != Entry::Invalid) {
            let tag = cached.tag.unwrap_or(self.hart.loaded_tag());
            let held = (0..self.slots.len()).find(|&slot| asid_of(slot).as_u16() == tag);
            let root = if tag == self.hart.loaded_tag() {
                self.loaded_root()
            } else {
                match held.and_then(|slot| self.slots[slot]) {
                    Some(Held {
                        space,
                        is_true: true,
                    }) => root_of(space),
                    _ => continue,
                }
            };
            assert_eq!(
                cached.entry,
                memory.truth(root, cached.of),
                "stale: {cached:?}"
            );
        }
        assert_eq!(self.hart.walked_freed.get(), 0, "a freed table was walked");
    }
}

fn root_of(space: usize) -> usize {
    space + 1
}

fn asid_of(slot: usize) -> Asid {
    Asid::new(slot as u16 + 1)
}

fn user_pages() -> impl Iterator<Item = Page> {
    all_pages().filter(|page| page.region != KERNEL)
}

/// Stories on harts with so many ASID bits.
fn tell(asid_bits: u8) {
    let kinds: [(Features, Processor); 3] = [
        (Features::NONE, SOUND),
        (Features::SVINVAL.with(Features::SVADU), SOUND),
        (Features::SVINVAL, CIP_1200),
    ];
    let (mut stores, mut frees) = (0, 0);
    for (kind, (features, processor)) in kinds.into_iter().enumerate() {
        for seed in 1..=150_u64 {
            let hart = Hart::new(asid_bits, features, processor, Memory::new(SPACES + 1));
            let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + kind as u64 + 1);
            let mut kernel = Kernel::new(&hart, [0, 1, 2, 64][dice.below(4)]);
            *hart.other.borrow_mut() = Other::new(Dice(dice.0.rotate_left(32) | 1));
            (0..80).for_each(|_| kernel.step(&mut dice));
            let other = hart.other.borrow();
            stores += other.stores_in_loads;
            frees += other.frees_in_loads;
        }
    }
    assert!(stores > 0 && frees > 0, "no other hart in loads");
}

#[test]
fn story_with_sixteen_bits() {
    tell(16);
}

#[test]
fn story_with_one_tag() {
    assert_eq!(AsidBits::new(1).unwrap().tags(), 1);
    tell(1);
}

#[test]
fn story_with_two_bits() {
    tell(2);
}

#[test]
fn story_without_tags() {
    tell(0);
}
