//! Page tables in small, behind a store buffer: roots with user regions of their own, one kernel region for all, and tables of two pairs of pages.

use shootdown_loongarch::tlb::PageSize;

/// Regions of an address space, the last one the kernel's (CSR.PGDH).
pub const REGIONS: usize = 3;
pub const KERNEL: usize = REGIONS - 1;
/// Pages of a region.
pub const PAGES: usize = 4;
pub const BASE: PageSize = PageSize::SIZE_4K;

const KERNEL_BASE: usize = 0xffff_8000_0000_0000;
/// What somebody who got a freed table writes there looks like entries, global ones.
const GARBAGE: Leaf = Leaf {
    frame: Some(u32::MAX),
    global: true,
};

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
            user => BASE.huge().bytes() * (user + 1),
        };
        base + self.index * BASE.bytes()
    }

    /// The region that holds an address, and the pair in it.
    pub fn pair_of(address: usize) -> Option<(usize, usize)> {
        let region = (0..REGIONS).find(|&region| {
            let start = Self { region, index: 0 }.address();
            (start..start + BASE.huge().bytes()).contains(&address)
        })?;
        let start = Self { region, index: 0 }.address();
        Some((region, (address - start) / BASE.bytes() / 2))
    }
}

/// What a page-table entry says. Without a frame it is invalid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Leaf {
    pub frame: Option<u32>,
    pub global: bool,
}

impl Leaf {
    pub const EMPTY: Self = Self {
        frame: None,
        global: false,
    };
}

/// What a directory entry says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Directory {
    /// 0, which leads to physical page 0.
    Nothing,
    Table(usize),
    Huge(Leaf),
}

impl Directory {
    /// There is nothing: the table whose entries are invalid, in all roots the same.
    pub const EMPTY: Self = Self::Table(0);
}

/// A word of memory that is stored to: walks may see any of these values, of which the last is what was stored last.
#[derive(Clone, Debug)]
pub struct Word<T>(Vec<T>);

impl<T: Copy> Word<T> {
    fn new(value: T) -> Self {
        Self(vec![value])
    }

    pub fn now(&self) -> T {
        *self.0.last().unwrap()
    }

    pub fn seen(&self) -> &[T] {
        &self.0
    }

    fn store(&mut self, value: T) {
        self.0.push(value);
    }

    fn complete(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    pub leaves: [Word<Leaf>; PAGES],
    pub is_freed: bool,
}

/// All of memory that holds page tables. A table's number is never used again.
#[derive(Clone, Debug)]
pub struct Tables {
    roots: Vec<[Word<Directory>; KERNEL]>,
    kernel: Word<Directory>,
    tables: Vec<Table>,
    /// The kernel's pages with odd numbers are global, too, empty or not.
    is_global: bool,
}

impl Tables {
    pub fn new(roots: usize, is_global: bool) -> Self {
        let mut new = Self {
            roots: Vec::new(),
            kernel: Word::new(Directory::EMPTY),
            tables: vec![Table {
                leaves: core::array::from_fn(|_| Word::new(Leaf::EMPTY)),
                is_freed: false,
            }],
            is_global,
        };
        new.link_kernel(1000);
        for root in 0..roots {
            new.roots
                .push(core::array::from_fn(|_| Word::new(Directory::EMPTY)));
            for region in 0..KERNEL {
                new.link(root, region, 100 * (root as u32 + 1) + 10 * region as u32);
            }
        }
        new.complete();
        new
    }

    /// All pages of the kernel's table are global from now on.
    pub fn make_global(&mut self) {
        self.is_global = true;
        for index in 0..PAGES {
            let region = KERNEL;
            self.set(0, Page { region, index }, Some(index as u32));
        }
    }

    /// Where a root is in memory, and back.
    pub fn root_address(root: usize) -> u64 {
        (root as u64 + 1) << 12
    }

    pub fn root_at(address: u64) -> usize {
        (address >> 12) as usize - 1
    }

    pub fn directory(&self, root: usize, region: usize) -> &Word<Directory> {
        match region {
            KERNEL => &self.kernel,
            user => &self.roots[root][user],
        }
    }

    fn directory_mut(&mut self, root: usize, region: usize) -> &mut Word<Directory> {
        match region {
            KERNEL => &mut self.kernel,
            user => &mut self.roots[root][user],
        }
    }

    pub fn table(&self, table: usize) -> &Table {
        &self.tables[table]
    }

    /// What the program has stored for a page.
    pub fn leaf(&self, root: usize, page: Page) -> Leaf {
        match self.directory(root, page.region).now() {
            Directory::Nothing => Leaf::EMPTY,
            Directory::Huge(leaf) => leaf,
            Directory::Table(table) => self.tables[table].leaves[page.index].now(),
        }
    }

    fn new_leaf(&self, page: Page, frame: Option<u32>) -> Leaf {
        let has_g = self.is_global || page.index % 2 == 0;
        let global = page.region == KERNEL && has_g;
        Leaf { frame, global }
    }

    /// Whether a region has a table of its own.
    pub fn has_table(&self, root: usize, region: usize) -> bool {
        let now = self.directory(root, region).now();
        now != Directory::EMPTY && matches!(now, Directory::Table(_))
    }

    /// Changes what a page is mapped to, if its region has a table.
    pub fn set(&mut self, root: usize, page: Page, frame: Option<u32>) {
        let leaf = self.new_leaf(page, frame);
        let now = self.directory(root, page.region).now();
        if let (true, Directory::Table(table)) = (self.has_table(root, page.region), now) {
            self.tables[table].leaves[page.index].store(leaf);
        }
    }

    fn new_table(&mut self, region: usize, frame: u32) -> Directory {
        let leaves = core::array::from_fn(|index| {
            let page = Page { region, index };
            Word::new(self.new_leaf(page, Some(frame + index as u32)))
        });
        let is_freed = false;
        self.tables.push(Table { leaves, is_freed });
        Directory::Table(self.tables.len() - 1)
    }

    /// Gives a user region a new table, its pages mapped to frames from `frame` on.
    pub fn link(&mut self, root: usize, region: usize, frame: u32) {
        let table = self.new_table(region, frame);
        self.store(root, region, table);
    }

    /// The same for the kernel's.
    pub fn link_kernel(&mut self, frame: u32) {
        let table = self.new_table(KERNEL, frame);
        self.kernel.store(table);
    }

    pub fn store(&mut self, root: usize, region: usize, directory: Directory) {
        self.directory_mut(root, region).store(directory);
    }

    /// Frees the table that a directory entry led to: from now on it holds somebody's data.
    pub fn free(&mut self, directory: Directory) {
        if let Directory::Table(table @ 1..) = directory {
            let table = &mut self.tables[table];
            table.is_freed = true;
            table.leaves = core::array::from_fn(|_| Word::new(GARBAGE));
        }
    }

    /// All stores are complete: walks see what was stored last.
    pub fn complete(&mut self) {
        self.kernel.complete();
        self.roots.iter_mut().flatten().for_each(Word::complete);
        let tables = self.tables.iter_mut();
        tables
            .flat_map(|table| &mut table.leaves)
            .for_each(Word::complete);
    }
}
