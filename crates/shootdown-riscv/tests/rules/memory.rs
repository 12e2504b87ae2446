//! Page tables in small: roots, with regions that each have a table of pages or are a megapage; and what a walk may still read of them.

use std::collections::BTreeSet;

/// Regions of an address space, the last one the kernel's.
pub const REGIONS: usize = 3;
pub const KERNEL: usize = REGIONS - 1;
/// Pages of a region.
pub const PAGES: usize = 3;
pub const REGION_BYTES: usize = 2 << 20;
const KERNEL_BASE: usize = 0xffff_ffc0_0000_0000;

/// A page by its region and its place there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Page {
    pub region: usize,
    pub index: usize,
}

/// The region that holds an address, if there is one.
pub fn region_at(address: usize) -> Option<usize> {
    let base = |region| Page { region, index: 0 }.address();
    (0..REGIONS).find(|&region| address & !(REGION_BYTES - 1) == base(region))
}

impl Page {
    /// The first page is at 0: an address that is 0 is an address all the same.
    pub fn address(self) -> usize {
        let base = match self.region {
            KERNEL => KERNEL_BASE,
            user => REGION_BYTES * user,
        };
        base + self.index * 4096
    }

    /// None outside all regions.
    pub fn of(address: usize) -> Option<Self> {
        all_pages().find(|page| page.address() == address & !4095)
    }
}

pub fn all_pages() -> impl Iterator<Item = Page> {
    (0..REGIONS).flat_map(|region| (0..PAGES).map(move |index| Page { region, index }))
}

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Entry {
    Invalid,
    Table(usize),
    /// A leaf; in a root that of a megapage, whose first frame it is.
    Frame(u32),
}

/// Where an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Of a root, for a region.
    Top(usize, usize),
    /// Of a table, for a page of its region.
    Leaf(usize, usize),
}

/// The stamp of a store that the hart has not seen.
const UNSEEN: u64 = u64::MAX;

/// What an entry said before a store. A walk may read it until a fence has ordered the store before it, for its tag; and no fence does before the hart has seen the store.
#[derive(Clone, Debug)]
struct Old {
    place: Place,
    entry: Entry,
    /// When the hart saw the store.
    stamp: u64,
    ordered_for: BTreeSet<u16>,
}

#[derive(Clone, Debug)]
struct Table {
    region: usize,
    entries: [Entry; PAGES],
    is_freed: bool,
}

/// All of memory that holds page tables. A table's number is never used again.
#[derive(Clone, Debug)]
pub struct Memory {
    roots: Vec<[Entry; REGIONS]>,
    tables: Vec<Table>,
    old: Vec<Old>,
    /// Goes on with each store, and with what is seen of others' ones.
    pub clock: u64,
}

impl Memory {
    /// Roots with tables of their own for user regions and a common one for the kernel's.
    pub fn new(roots: usize) -> Self {
        let mut new = Self {
            roots: vec![[Entry::Invalid; REGIONS]; roots],
            tables: Vec::new(),
            old: Vec::new(),
            clock: 0,
        };
        let kernel = new.add_table(KERNEL, 1000);
        for root in 0..roots {
            for region in 0..KERNEL {
                let frame = 100 * (root + 1) + 10 * region;
                new.roots[root][region] = Entry::Table(new.add_table(region, frame as u32));
            }
            new.roots[root][KERNEL] = Entry::Table(kernel);
        }
        new
    }

    /// Where a root is in memory, and back.
    pub fn root_address(root: usize) -> u64 {
        (root as u64 + 1) << 12
    }

    pub fn root_at(address: u64) -> usize {
        (address >> 12) as usize - 1
    }

    pub fn roots(&self) -> usize {
        self.roots.len()
    }

    /// A table, filled before anything leads to it.
    pub fn add_table(&mut self, region: usize, frame: u32) -> usize {
        self.tables.push(Table {
            region,
            entries: core::array::from_fn(|index| Entry::Frame(frame + index as u32)),
            is_freed: false,
        });
        self.tables.len() - 1
    }

    pub fn is_freed(&self, table: usize) -> bool {
        self.tables[table].is_freed
    }

    /// Somebody's data from now on, which look like entries.
    pub fn free(&mut self, table: usize) {
        self.tables[table].is_freed = true;
        self.tables[table].entries = [Entry::Frame(u32::MAX); PAGES];
    }

    pub fn get(&self, place: Place) -> Entry {
        match place {
            Place::Top(root, region) => self.roots[root][region],
            Place::Leaf(table, index) => self.tables[table].entries[index],
        }
    }

    /// A store by this hart. By what it overwrites it has seen that.
    pub fn store(&mut self, place: Place, entry: Entry) {
        self.clock += 1;
        let at_place = self.old.iter_mut().filter(|old| old.place == place);
        at_place.for_each(|old| old.stamp = old.stamp.min(self.clock));
        self.write(place, entry, self.clock);
    }

    /// A store by another hart, which this one has not seen yet. Its walks may have.
    pub fn store_unseen(&mut self, place: Place, entry: Entry) {
        self.write(place, entry, UNSEEN);
    }

    /// This hart has seen all stores by now, by what the other hart told it behind them.
    pub fn see_all(&mut self) {
        self.clock += 1;
        let stamp = |old: &mut Old| old.stamp = old.stamp.min(self.clock);
        self.old.iter_mut().for_each(stamp);
    }

    /// Whether another hart has stored to what translates a region, and this one has not seen that.
    pub fn has_unseen(&self, region: usize) -> bool {
        let mut old = self.old.iter();
        old.any(|old| old.stamp == UNSEEN && self.region_of(old.place) == region)
    }

    fn write(&mut self, place: Place, entry: Entry, stamp: u64) {
        self.old.push(Old {
            place,
            entry: self.get(place),
            stamp,
            ordered_for: BTreeSet::new(),
        });
        match place {
            Place::Top(root, region) => self.roots[root][region] = entry,
            Place::Leaf(table, index) => self.tables[table].entries[index] = entry,
        }
    }

    /// Where the page's entry is, if its region has a table.
    pub fn leaf_place(&self, root: usize, page: Page) -> Option<Place> {
        match self.roots[root][page.region] {
            Entry::Table(table) => Some(Place::Leaf(table, page.index)),
            _ => None,
        }
    }

    /// What the page is mapped to.
    pub fn truth(&self, root: usize, page: Page) -> Entry {
        match self.roots[root][page.region] {
            Entry::Invalid => Entry::Invalid,
            Entry::Table(table) => self.get(Place::Leaf(table, page.index)),
            Entry::Frame(first) => Entry::Frame(first + page.index as u32),
        }
    }

    /// What a walk under the tag may read.
    pub fn readable(&self, place: Place, tag: u16) -> Vec<Entry> {
        let readable = |old: &&Old| old.place == place && !old.ordered_for.contains(&tag);
        let old = self.old.iter().filter(readable).map(|old| old.entry);
        old.chain([self.get(place)]).collect()
    }

    fn region_of(&self, place: Place) -> usize {
        match place {
            Place::Top(_, region) => region,
            Place::Leaf(table, _) => self.tables[table].region,
        }
    }

    /// Whether the store that left `old` behind was one to a leaf that translates the address.
    fn is_leaf_at(&self, old: &Old, address: usize) -> bool {
        match old.place {
            Place::Top(_, region) => {
                matches!(old.entry, Entry::Frame(_)) && region_at(address) == Some(region)
            }
            Place::Leaf(table, index) => {
                let region = self.tables[table].region;
                Page::of(address) == Some(Page { region, index })
            }
        }
    }

    /// All stores that were seen come before all later walks.
    pub fn order_all(&mut self) {
        self.old.retain(|old| old.stamp == UNSEEN);
    }

    /// Those seen up to a time, to the leaves of an address, before all later walks.
    pub fn order_leaf(&mut self, address: usize, up_to: u64) {
        let mut old = core::mem::take(&mut self.old);
        old.retain(|old| !(self.is_leaf_at(old, address) && old.stamp <= up_to));
        self.old = old;
    }

    /// All that were seen, before walks under the tag; but for what is global.
    pub fn order_tag(&mut self, tag: u16) {
        let mut old = core::mem::take(&mut self.old);
        for old in old.iter_mut().filter(|old| old.stamp != UNSEEN) {
            if self.region_of(old.place) != KERNEL {
                old.ordered_for.insert(tag);
            }
        }
        self.old = old;
    }
}
