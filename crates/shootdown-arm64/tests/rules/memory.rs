//! Page tables in small: top tables of regions, each with a table of pages or one block; and what walkers of each CPU may still see of them.

pub const CPUS: usize = 2;
/// Regions of a space, and the kernel's, which is behind TTBR1_EL1.
pub const USER_REGIONS: usize = 2;
pub const KERNEL: usize = USER_REGIONS;
pub const PAGES: usize = 3;
/// Top table 0 is empty; the last one is the kernel's.
pub const ROOTS: usize = 5;
pub const KERNEL_ROOT: usize = ROOTS - 1;
const KERNEL_BASE: usize = 0xffff_8000_0000_0000;
pub const REGION_BYTES: usize = 2 << 20;

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
        base + self.index * 4096
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Leaf {
    pub frame: u32,
    pub global: bool,
    /// One level up: all of a region.
    pub block: bool,
}

impl Leaf {
    pub fn bytes(self) -> usize {
        if self.block { REGION_BYTES } else { 4096 }
    }
}

/// A word of a table: an entry of a top table, or of a table of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    Top(usize, usize),
    Leaf(usize, usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    Nothing,
    Table(usize),
    Leaf(Leaf),
}

/// A value that was overwritten, and whose walkers may still read it.
#[derive(Clone, Copy, Debug)]
pub struct Old {
    word: Word,
    value: Value,
    writer: usize,
    /// The CPUs that have seen the store.
    told: [bool; CPUS],
    visible: [bool; CPUS],
}

impl Old {
    pub fn is_by(&self, cpu: usize) -> bool {
        self.writer == cpu
    }

    pub fn is_known_to(&self, cpu: usize) -> bool {
        self.told[cpu]
    }
}

pub struct Memory {
    tops: [[Value; USER_REGIONS + 1]; ROOTS],
    tables: Vec<[Value; PAGES]>,
    freed: Vec<bool>,
    old: Vec<Old>,
}

impl Memory {
    pub fn new() -> Self {
        let mut memory = Self {
            tops: [[Value::Nothing; USER_REGIONS + 1]; ROOTS],
            tables: Vec::new(),
            freed: Vec::new(),
            old: Vec::new(),
        };
        for root in 1..ROOTS {
            for region in 0..=KERNEL {
                if (root == KERNEL_ROOT) == (region == KERNEL) {
                    let table = memory.new_table(100 * root as u32, region == KERNEL);
                    memory.tops[root][region] = Value::Table(table);
                }
            }
        }
        memory
    }

    /// A table of valid pages; of the kernel's all but the last are global.
    pub fn new_table(&mut self, frame: u32, kernel: bool) -> usize {
        let leaf = |index| Leaf {
            frame: frame + index as u32,
            global: kernel && index + 1 != PAGES,
            block: false,
        };
        self.tables
            .push(core::array::from_fn(|index| Value::Leaf(leaf(index))));
        self.freed.push(false);
        self.tables.len() - 1
    }

    pub fn free(&mut self, table: usize) {
        self.freed[table] = true;
    }

    pub fn is_freed(&self, table: usize) -> bool {
        self.freed[table]
    }

    pub fn truth(&self, word: Word) -> Value {
        match word {
            Word::Top(root, region) => self.tops[root][region],
            Word::Leaf(table, index) => self.tables[table][index],
        }
    }

    pub fn table(&self, root: usize, region: usize) -> Option<usize> {
        match self.truth(Word::Top(root, region)) {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub fn leaf(&self, root: usize, page: Page) -> Option<Leaf> {
        let top = self.truth(Word::Top(root, page.region));
        let found = match top {
            Value::Table(table) => self.truth(Word::Leaf(table, page.index)),
            block => block,
        };
        match found {
            Value::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// All that a walker of `cpu` may read.
    pub fn walked(&self, cpu: usize, word: Word) -> Vec<Value> {
        let old = self.old.iter();
        let old = old.filter(|old| old.word == word && old.visible[cpu]);
        let old = old.map(|old| old.value);
        old.chain([self.truth(word)]).collect()
    }

    pub fn store(&mut self, writer: usize, word: Word, value: Value) {
        self.old.push(Old {
            word,
            value: self.truth(word),
            writer,
            told: core::array::from_fn(|cpu| cpu == writer),
            visible: [true; CPUS],
        });
        match word {
            Word::Top(root, region) => self.tops[root][region] = value,
            Word::Leaf(table, index) => self.tables[table][index] = value,
        }
    }

    /// A CPU has seen all stores so far: it waits for who made them, or reads a word that they were made before.
    pub fn tell(&mut self, cpu: usize) {
        self.old.iter_mut().for_each(|old| old.told[cpu] = true);
    }

    /// Walkers of `cpu` read nothing old any more of the stores for which `is_meant`. Whether there was any.
    pub fn settle(&mut self, cpu: usize, is_meant: impl Fn(&Old) -> bool) -> bool {
        let mut settled = false;
        // Newest first: who sees a store sees nothing older of the same word (coherence).
        let mut seen = Vec::new();
        for old in self.old.iter_mut().rev() {
            if is_meant(old) || seen.contains(&old.word) {
                seen.push(old.word);
                settled |= std::mem::replace(&mut old.visible[cpu], false);
            }
        }
        self.old.retain(|old| old.visible.contains(&true));
        settled
    }
}
