//! Page tables of three levels: a root, one table below it for each region, and leaf tables that move while processors walk them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, PAGE_BYTES, TOP_SHIFT};

/// Entries of a table.
pub const ENTRIES: usize = PAGE_BYTES / 8;
/// What a leaf table translates.
const LEAF_BYTES: usize = PAGE_BYTES * ENTRIES;
/// Pages that are used of each.
pub const PAGES_PER_TABLE: usize = 16;
/// Leaf tables of a region.
pub const TABLES_PER_REGION: usize = 4;
/// How many leaf tables there are, in use or not; one bit each in a word.
const LEAVES: usize = 32;

/// A table, or the memory of a page.
#[repr(C, align(16384))]
pub struct Table([AtomicU64; ENTRIES]);

impl Table {
    /// Empty.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    /// With these entries, for CPUs that walk them before they can run what makes tables.
    #[allow(dead_code, reason = "not all architectures have such CPUs")]
    pub const fn with<const N: usize>(entries: [(usize, u64); N]) -> Self {
        let mut table = Self::new();
        let mut at = 0;
        while at < N {
            table.0[entries[at].0] = AtomicU64::new(entries[at].1);
            at += 1;
        }
        table
    }

    /// Where it is in physical memory.
    pub fn physical(&self) -> usize {
        arch::physical((&raw const self.0).addr())
    }

    /// Makes it one whose entries lead to tables: so far to none.
    pub fn become_directory(&self) {
        (0..ENTRIES).for_each(|index| self.set(index, arch::empty_directory()));
    }

    /// The word of an entry.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[index]
    }

    /// Changes an entry: what it leads to is seen by who finds it, other CPUs' walkers too.
    pub fn set(&self, index: usize, entry: u64) {
        // ORDERING: publishes what the entry leads to; the barrier for walkers is the architecture's.
        self.0[index].store(entry, Ordering::Release);
        arch::publish_tables();
    }
}

static LEAF_TABLES: [Table; LEAVES] = [const { Table::new() }; LEAVES];
/// One bit for each leaf table that is in no use.
static FREE: AtomicUsize = AtomicUsize::new((1 << LEAVES) - 1);

fn take() -> Option<usize> {
    let without_lowest = |free: usize| (free != 0).then_some(free & free.wrapping_sub(1));
    // ORDERING: sees what was done to the table before it was freed; pairs with `give`.
    let before = FREE.fetch_update(Ordering::Acquire, Ordering::Relaxed, without_lowest);
    before.ok().map(|free| free.trailing_zeros() as usize)
}

/// Makes a leaf table useless that nobody may walk any more, and free: whoever does comes to `poison`.
pub fn give(name: usize, poison: u64) {
    (0..PAGES_PER_TABLE).for_each(|page| LEAF_TABLES[name].set(page, poison));
    // ORDERING: publishes the poisoned entries; pairs with `take`.
    FREE.fetch_or(1 << name, Ordering::Release);
}

/// The pages of a region: a top-level entry, and below it [`TABLES_PER_REGION`] leaf tables.
pub struct Leaves {
    base: usize,
    is_global: bool,
    above: &'static Table,
    /// The leaf tables in use, by number.
    names: [AtomicUsize; TABLES_PER_REGION],
}

impl Leaves {
    /// Those that entry `top` of the kernel's part or of a space's leads to by `above`. Once for each.
    ///
    /// # Panics
    /// When leaf tables run out.
    pub fn new(top: usize, above: &'static Table, is_global: bool) -> Self {
        above.become_directory();
        let names = core::array::from_fn(|index| {
            let name = take().expect("there are more leaf tables than regions have");
            (0..PAGES_PER_TABLE)
                .for_each(|page| LEAF_TABLES[name].set(page, arch::empty(is_global)));
            above.set(index, arch::table(LEAF_TABLES[name].physical()));
            AtomicUsize::new(name)
        });
        let base = match is_global {
            true => arch::KERNEL_BASE,
            false => arch::SPACE_BASE,
        };
        Self {
            base: base + (top << TOP_SHIFT),
            is_global,
            above,
            names,
        }
    }

    /// Where a page is.
    pub fn address(&self, page: usize) -> usize {
        self.base + page / PAGES_PER_TABLE * LEAF_BYTES + page % PAGES_PER_TABLE * PAGE_BYTES
    }

    /// Changes the entry of a page, whose owner the caller is.
    pub fn map(&self, page: usize, frame: Option<usize>) {
        let empty = arch::empty(self.is_global);
        let entry = frame.map_or(empty, |frame| arch::leaf(frame, self.is_global));
        LEAF_TABLES[self.table_of(page)].set(page % PAGES_PER_TABLE, entry);
    }

    /// Whether a page shows a frame.
    pub fn is_mapped(&self, page: usize) -> bool {
        self.entry(page) != arch::empty(self.is_global)
    }

    /// The entry of a page.
    pub fn entry(&self, page: usize) -> u64 {
        let table = &LEAF_TABLES[self.table_of(page)];
        table.word(page % PAGES_PER_TABLE).load(Ordering::Relaxed)
    }

    /// The name of the leaf table of a page, without a lock.
    pub fn table_of(&self, page: usize) -> usize {
        self.names[page / PAGES_PER_TABLE].load(Ordering::Relaxed)
    }

    /// Puts a copy in the place of the leaf table of a page; the caller owns all its pages. The name of the old one; `None` when no table is free.
    pub fn move_table(&self, page: usize) -> Option<usize> {
        let (new, old) = (take()?, self.table_of(page));
        for entry in 0..PAGES_PER_TABLE {
            let word = LEAF_TABLES[old].word(entry).load(Ordering::Relaxed);
            LEAF_TABLES[new].set(entry, word);
        }
        let index = page / PAGES_PER_TABLE;
        self.above
            .set(index, arch::table(LEAF_TABLES[new].physical()));
        self.names[index].store(new, Ordering::Relaxed);
        Some(old)
    }
}
