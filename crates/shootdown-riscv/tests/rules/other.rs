//! Another hart, which changes page tables and frees them before any instruction of the emulated one, and so between the two halves of a load.
//!
//! It keeps to what an engine promises: what a change takes away under a root that this hart has joined is asked of it by a request, and a table is freed when that is done. Of other roots' changes it takes note,
//! and frees at once.

use std::collections::{BTreeSet, VecDeque};

use super::memory::{Entry, KERNEL, Memory, PAGES, Page, Place, all_pages};

/// xorshift64.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    pub fn page(&mut self) -> Page {
        all_pages().nth(self.below(all_pages().count())).unwrap()
    }
}

/// What another hart has changed.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Leaf,
    Megapage,
    /// A table was unlinked, or linked where a megapage was.
    Tables,
}

/// What another hart asks this one to drop.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub root: usize,
    pub page: Page,
    pub change: Change,
    unlinked: Option<usize>,
}

#[derive(Default, Debug)]
pub struct Other {
    /// Without it, nothing is done.
    dice: Option<Dice>,
    frame: u32,
    /// What this hart may walk: the roots of the space that is loaded and of the one that it loads.
    joined: Vec<usize>,
    requests: VecDeque<Request>,
    /// Changed while this hart had not joined them.
    changed: BTreeSet<usize>,
    /// Tables that nobody walks any more.
    unlinked: Vec<usize>,
    /// While this hart was loading a root.
    pub stores_in_loads: u32,
    pub frees_in_loads: u32,
}

impl Other {
    pub fn new(dice: Dice) -> Self {
        Self {
            dice: Some(dice),
            frame: 1_000_000,
            ..Self::default()
        }
    }

    pub fn join(&mut self, root: usize) {
        self.joined.push(root);
    }

    pub fn leave_all_but(&mut self, root: Option<usize>) {
        self.joined = root.into_iter().collect();
    }

    pub fn next_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    pub fn has_request(&self, region: usize) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|request| request.page.region == region)
    }

    pub fn done(&mut self, request: Request) {
        self.unlinked.extend(request.unlinked);
    }

    pub fn take_changed(&mut self) -> BTreeSet<usize> {
        core::mem::take(&mut self.changed)
    }

    /// One step, or none.
    pub fn act(&mut self, memory: &mut Memory) {
        let Some(mut dice) = self.dice.take() else {
            return;
        };
        let (root, page) = (1 + dice.below(memory.roots() - 1), dice.page());
        match dice.below(12) {
            0 => self.change_leaf(memory, &mut dice, root, page),
            1 if page.region == KERNEL => self.replace_kernel_table(memory),
            1 => self.change_region(memory, &mut dice, root, page.region),
            2..=3 => self.free(memory),
            _ => {}
        }
        self.dice = Some(dice);
    }

    fn free(&mut self, memory: &mut Memory) {
        if let Some(table) = self.unlinked.pop() {
            memory.free(table);
            self.frees_in_loads += u32::from(self.joined.len() > 1);
        }
    }

    fn change_leaf(&mut self, memory: &mut Memory, dice: &mut Dice, root: usize, page: Page) {
        let Some(place) = memory.leaf_place(root, page) else {
            return;
        };
        let before = memory.get(place);
        let new = match dice.below(3) {
            0 => Entry::Invalid,
            _ => Entry::Frame(self.new_frames()),
        };
        self.store(memory, place, new);
        if before != Entry::Invalid {
            self.ask(root, page, Change::Leaf, None);
        }
    }

    /// What becomes valid is told to nobody.
    fn change_region(&mut self, memory: &mut Memory, dice: &mut Dice, root: usize, region: usize) {
        let (place, page) = (Place::Top(root, region), Page { region, index: 0 });
        let before = memory.get(place);
        let new = match dice.below(3) {
            0 => Entry::Invalid,
            1 => Entry::Frame(self.new_frames()),
            _ => Entry::Table(memory.add_table(region, self.new_frames())),
        };
        self.store(memory, place, new);
        match (before, new) {
            (Entry::Invalid, _) => {}
            (Entry::Table(table), _) => self.ask(root, page, Change::Tables, Some(table)),
            (Entry::Frame(_), Entry::Table(_)) => self.ask(root, page, Change::Tables, None),
            _ => self.ask(root, page, Change::Megapage, None),
        }
    }

    fn replace_kernel_table(&mut self, memory: &mut Memory) {
        let Entry::Table(before) = memory.get(Place::Top(0, KERNEL)) else {
            unreachable!()
        };
        let new = Entry::Table(memory.add_table(KERNEL, self.new_frames()));
        for root in 0..memory.roots() {
            self.store(memory, Place::Top(root, KERNEL), new);
        }
        let (region, index) = (KERNEL, 0);
        self.ask(0, Page { region, index }, Change::Tables, Some(before));
    }

    fn store(&mut self, memory: &mut Memory, place: Place, entry: Entry) {
        memory.store_unseen(place, entry);
        self.stores_in_loads += u32::from(self.joined.len() > 1);
    }

    fn ask(&mut self, root: usize, page: Page, change: Change, unlinked: Option<usize>) {
        if page.region == KERNEL || self.joined.contains(&root) {
            self.requests.push_back(Request {
                root,
                page,
                change,
                unlinked,
            });
        } else {
            self.changed.insert(root);
            self.unlinked.extend(unlinked);
        }
    }

    fn new_frames(&mut self) -> u32 {
        self.frame += PAGES as u32;
        self.frame
    }
}
