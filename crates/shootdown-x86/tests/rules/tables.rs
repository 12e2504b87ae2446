//! Page tables in small: roots, with regions that each have a table of pages.

/// Regions of an address space, the last one the kernel's.
pub const REGIONS: usize = 3;
pub const KERNEL: usize = REGIONS - 1;
/// Pages of a region.
pub const PAGES: usize = 3;

const PAGE_BYTES: usize = 4096;
const REGION_BYTES: usize = 2 << 20;
const KERNEL_BASE: usize = 0xffff_8000_0000_0000;

/// A page by its region and its place there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Page {
    pub region: usize,
    pub index: usize,
}

impl Page {
    pub fn address(self) -> usize {
        let base = match self.region {
            KERNEL => KERNEL_BASE,
            user => REGION_BYTES * (user + 1),
        };
        base + self.index * PAGE_BYTES
    }

    /// The page that holds an address; None outside all regions.
    pub fn of(address: usize) -> Option<Self> {
        all_pages().find(|page| page.address() == address & !(PAGE_BYTES - 1))
    }
}

pub fn all_pages() -> impl Iterator<Item = Page> {
    (0..REGIONS).flat_map(|region| (0..PAGES).map(move |index| Page { region, index }))
}

/// What a page-table entry says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Leaf {
    pub frame: u32,
    pub global: bool,
}

pub type Table = [Option<Leaf>; PAGES];

/// All of memory that holds page tables. A table's number is never used again.
#[derive(Clone, Debug)]
pub struct Tables {
    roots: Vec<[Option<usize>; REGIONS]>,
    tables: Vec<Table>,
}

impl Tables {
    /// Roots with tables of their own for user regions and a common one for the kernel's.
    pub fn new(roots: usize) -> Self {
        let kernel = core::array::from_fn(|index| {
            Some(Leaf {
                frame: 1000 + index as u32,
                global: true,
            })
        });
        let mut new = Self {
            roots: Vec::new(),
            tables: vec![kernel],
        };
        for root in 0..roots {
            new.roots.push([None, None, Some(0)]);
            for region in 0..KERNEL {
                new.link(root, region, 100 * (root + 1) as u32);
            }
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

    pub fn table_of(&self, root: usize, region: usize) -> Option<usize> {
        self.roots[root][region]
    }

    pub fn table(&self, table: usize) -> &Table {
        &self.tables[table]
    }

    pub fn leaf(&self, root: usize, page: Page) -> Option<Leaf> {
        self.tables[self.table_of(root, page.region)?][page.index]
    }

    /// Changes what a page is mapped to, if its region has a table.
    pub fn set(&mut self, root: usize, page: Page, frame: Option<u32>) {
        if let Some(table) = self.table_of(root, page.region) {
            let global = page.region == KERNEL;
            self.tables[table][page.index] = frame.map(|frame| Leaf { frame, global });
        }
    }

    /// Gives a user region without a table a new one, its pages mapped to frames from `frame` on.
    pub fn link(&mut self, root: usize, region: usize, frame: u32) {
        let pages = core::array::from_fn(|index| {
            Some(Leaf {
                frame: frame + (region * PAGES + index) as u32,
                global: false,
            })
        });
        if self.roots[root][region].is_none() {
            self.roots[root][region] = Some(self.tables.len());
            self.tables.push(pages);
        }
    }

    /// Frees a user region's table: from now on it holds somebody's data, which look like entries.
    pub fn free(&mut self, root: usize, region: usize) {
        let garbage = Leaf {
            frame: u32::MAX,
            global: false,
        };
        if let Some(table) = self.roots[root][region].take() {
            self.tables[table] = [Some(garbage); PAGES];
        }
    }
}
