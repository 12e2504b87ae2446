//! [`Memory`]: frames and page tables, which nothing but this machine's loads walk.
//!
//! A space has a root of [`TABLES`] entries, each naming a table of [`PAGES_PER_TABLE`] entries, each naming a frame of one
//! word. The kernel's part is one more such tree, whose tables never move. And each CPU has two private roots: one for the first space,
//! with copies of its entries, and one more for the table of the CPU's windows; and one for the second space, with the entries that this CPU has taken.

use std::cell::UnsafeCell;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use shootdown::FlushRange;

use crate::entry::Entry;

/// Page tables of a space.
pub const TABLES: usize = 4;
/// Pages that one table translates.
pub const PAGES_PER_TABLE: usize = 16;
/// Pages of a space.
pub(crate) const PAGES: usize = TABLES * PAGES_PER_TABLE;
/// Entries of a root that is loaded: the last one is for windows.
pub(crate) const TOP: usize = TABLES + 1;
/// Pages that a loaded root translates.
pub(crate) const SPAN: usize = TOP * PAGES_PER_TABLE;
/// A top-level entry that leads nowhere.
const NO_TABLE: u32 = u32::MAX;
/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// Where windows begin.
const WINDOW_START: usize = PAGES * PAGE_BYTES;
/// Where the kernel's part begins.
const KERNEL_START: usize = 1 << 40;
/// Tables that may be on their way from one use to the next.
const SPARE_TABLES: usize = 16;

/// A part of the address space with page tables of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// The user part of the space with this index.
    Space(usize),
    /// The kernel's part, which all spaces share.
    Kernel,
    /// The windows of the CPU with this index in the first space: [`PAGES_PER_TABLE`] pages.
    Window(usize),
}

/// A frame's word, on purpose not atomic: a load that the engine should have prevented is a data race.
#[derive(Debug)]
struct Frame(UnsafeCell<u64>);

// SAFETY: accesses are volatile words; that they are ordered is what the engine promises.
unsafe impl Sync for Frame {}

#[derive(Debug)]
struct Table {
    in_use: AtomicBool,
    entries: [AtomicU32; PAGES_PER_TABLE],
}

/// All memory of a machine.
#[derive(Debug)]
pub struct Memory {
    /// The tables of each space, after them the kernel's, and after that each CPU's private root for windows, and then its own.
    roots: Vec<[AtomicU32; TOP]>,
    spaces: usize,
    cpus: usize,
    tables: Vec<Table>,
    frames: Vec<Frame>,
    freed_walks: AtomicU64,
}

impl Memory {
    pub(crate) fn new(spaces: usize, frames: usize, cpus: usize) -> Self {
        let shared = (spaces + 1) * TABLES;
        let used = shared + cpus;
        let table = |index: usize| Table {
            in_use: AtomicBool::new(index < used),
            entries: Default::default(),
        };
        let root = |index: usize| {
            std::array::from_fn(|slot| {
                AtomicU32::new(match (index.checked_sub(spaces + 1), slot) {
                    (None, 0..TABLES) => (index * TABLES + slot) as u32,
                    (Some(cpu), TABLES) if cpu < cpus => (shared + cpu) as u32,
                    _ => NO_TABLE,
                })
            })
        };
        Self {
            roots: (0..=spaces + 2 * cpus).map(root).collect(),
            spaces,
            cpus,
            tables: (0..used + SPARE_TABLES).map(table).collect(),
            frames: (0..frames).map(|_| Frame(UnsafeCell::new(0))).collect(),
            freed_walks: AtomicU64::new(0),
        }
    }

    /// How many spaces.
    pub fn spaces(&self) -> usize {
        self.spaces
    }

    /// How many frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// How many pages each part has.
    pub fn pages(&self) -> usize {
        PAGES
    }

    /// The address of a page.
    pub fn address(&self, part: Part, page: usize) -> usize {
        let start = match part {
            Part::Space(_) => 0,
            Part::Kernel => KERNEL_START,
            Part::Window(_) => WINDOW_START,
        };
        start + page * PAGE_BYTES
    }

    /// The page number of a part's address; `None` if it is in the other kind of part.
    pub(crate) fn page_at(part: Part, address: usize) -> Option<usize> {
        let (start, pages) = match part {
            Part::Space(_) => (0, PAGES),
            Part::Kernel => (KERNEL_START, PAGES),
            Part::Window(_) => (WINDOW_START, PAGES_PER_TABLE),
        };
        let page = address.checked_sub(start)? / PAGE_BYTES;
        (page < pages).then_some(page)
    }

    /// What [`switch_to`](shootdown::Shootdown::switch_to) loads for a space.
    pub(crate) fn root_of(space: usize) -> u64 {
        space as u64 + 1
    }

    /// What [`Windows::switch_to`](shootdown::windows::Windows::switch_to) loads on a CPU for the first space.
    pub(crate) fn private_root(&self, cpu: usize) -> u64 {
        Self::root_of(self.spaces + 1 + cpu)
    }

    /// What [`Reach::switch_to`](shootdown::reach::Reach::switch_to) loads on a CPU for the second space.
    pub(crate) fn own_root(&self, cpu: usize) -> u64 {
        self.private_root(self.cpus + cpu)
    }

    /// Takes the top-level entries of a range of a space over into a private root.
    pub(crate) fn copy_top(&self, shared: u64, private: u64, range: FlushRange) {
        let (from, to) = (self.entries(shared), self.entries(private));
        for slot in Self::slots(range) {
            // ORDERING: Acquire and Release: as `table_of` and `move_table`, by way of the copy.
            let table = from[slot].load(Ordering::Acquire);
            to[slot].store(table, Ordering::Release);
        }
    }

    /// Empties those of a range.
    pub(crate) fn clear_top(&self, private: u64, range: FlushRange) {
        for slot in Self::slots(range) {
            self.entries(private)[slot].store(NO_TABLE, Ordering::Relaxed);
        }
    }

    /// Which top-level entry an address of a space has.
    pub(crate) fn slot_at(address: usize) -> usize {
        (address / PAGE_BYTES / PAGES_PER_TABLE).min(TABLES - 1)
    }

    fn slots(range: FlushRange) -> RangeInclusive<usize> {
        Self::slot_at(range.start())..=Self::slot_at(range.end() - 1)
    }

    /// The top-level entries of a root with a user part.
    fn entries(&self, root: u64) -> &[AtomicU32; TOP] {
        &self.roots[root as usize - 1]
    }

    /// Changes a page-table entry; flushes nothing. One thread at a time for each page. Any context.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn map(&self, part: Part, page: usize, frame: Option<usize>) {
        let entry = frame.map_or(Entry::Unmapped, |frame| Entry::Frame(frame as u32));
        let table = self.table_of(part, page / PAGES_PER_TABLE);
        // ORDERING: Release publishes what the frame holds; pairs with the Acquire in `walk`.
        self.tables[table].entries[page % PAGES_PER_TABLE].store(entry.word(), Ordering::Release);
    }

    /// Stores a word in a frame. Any context.
    pub fn write_frame(&self, frame: usize, word: u64) {
        // SAFETY: a valid word; see `Frame`.
        unsafe { self.frames[frame].0.get().write_volatile(word) }
    }

    /// The word of a frame. Any context.
    pub fn read_frame(&self, frame: usize) -> u64 {
        // SAFETY: a valid word; see `Frame`.
        unsafe { self.frames[frame].0.get().read_volatile() }
    }

    /// Copies the table of `page` to another place, and makes the root name that; flushes nothing. Returns the name of the
    /// old table, or `None` if no table is free. The caller keeps others from changing entries of these pages meanwhile.
    pub fn move_table(&self, space: usize, page: usize) -> Option<usize> {
        let slot = &self.roots[space][page / PAGES_PER_TABLE];
        let old = slot.load(Ordering::Relaxed) as usize;
        let free = |table: &Table| !table.in_use.load(Ordering::Relaxed);
        let claim = |table: &&Table| {
            // ORDERING: Acquire sees the last use; pairs with `free_table`.
            free(table) && !table.in_use.swap(true, Ordering::Acquire)
        };
        let new = self.tables.iter().position(|table| claim(&table))?;
        for (to, from) in self.tables[new]
            .entries
            .iter()
            .zip(&self.tables[old].entries)
        {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // ORDERING: Release publishes the copy; pairs with the Acquire in `table_of`.
        slot.store(new as u32, Ordering::Release);
        Some(old)
    }

    /// Makes a table useless and free: no CPU can walk it any more.
    pub fn free_table(&self, table: usize) {
        let table = &self.tables[table];
        for entry in &table.entries {
            entry.store(Entry::Freed.word(), Ordering::Relaxed);
        }
        // ORDERING: Release; pairs with the claim in `move_table`.
        table.in_use.store(false, Ordering::Release);
    }

    /// How often some CPU walked a table that was given back.
    pub fn freed_walks(&self) -> u64 {
        self.freed_walks.load(Ordering::Relaxed)
    }

    /// The table in which the part has its pages from `slot` times [`PAGES_PER_TABLE`] on.
    pub(crate) fn table_of(&self, part: Part, slot: usize) -> usize {
        let (root, slot) = match part {
            Part::Space(index) => (index, slot),
            Part::Kernel => (self.spaces, slot),
            Part::Window(cpu) => (self.spaces + 1 + cpu, TABLES),
        };
        let root = Self::root_of(root);
        self.table_at(root, slot)
            .expect("parts have all their tables")
    }

    /// The table that an entry of this root names.
    pub(crate) fn table_at(&self, root: u64, slot: usize) -> Option<usize> {
        // ORDERING: Acquire; pairs with `move_table`.
        let table = self.entries(root)[slot].load(Ordering::Acquire);
        (table != NO_TABLE).then_some(table as usize)
    }

    /// The entry of a page, by way of this table.
    pub(crate) fn walk(&self, table: usize, page: usize) -> Entry {
        // ORDERING: Acquire; pairs with `map`.
        let word = self.tables[table].entries[page % PAGES_PER_TABLE].load(Ordering::Acquire);
        let entry = Entry::of(word);
        if entry == Entry::Freed {
            self.freed_walks.fetch_add(1, Ordering::Relaxed);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_table_keeps_its_entries_and_a_freed_one_is_known() {
        let memory = Memory::new(1, 4, 0);
        memory.map(Part::Space(0), 17, Some(3));
        let old = memory.move_table(0, 17).unwrap();
        let new = memory.table_of(Part::Space(0), 1);
        assert_ne!(old, new);
        assert_eq!(memory.walk(new, 17), Entry::Frame(3));
        assert_eq!(memory.walk(old, 17), Entry::Frame(3));
        memory.free_table(old);
        assert_eq!(memory.walk(old, 17), Entry::Freed);
        assert_eq!(memory.freed_walks(), 1);
    }

    #[test]
    fn addresses_belong_to_one_part() {
        let memory = Memory::new(1, 1, 1);
        for (part, last) in [
            (Part::Space(0), 63),
            (Part::Window(0), 15),
            (Part::Kernel, 63),
        ] {
            let address = memory.address(part, last);
            assert_eq!(Memory::page_at(part, address), Some(last));
            assert_eq!(Memory::page_at(part, address + PAGE_BYTES), None);
        }
        let kernel = memory.address(Part::Kernel, 0);
        assert_eq!(Memory::page_at(Part::Space(0), kernel), None);
        assert_eq!(Memory::page_at(Part::Kernel, 0), None);
    }

    #[test]
    fn a_private_root_has_copies_and_a_window() {
        let memory = Memory::new(1, 4, 2);
        let (shared, private) = (Memory::root_of(0), memory.private_root(1));
        assert_eq!(memory.table_at(shared, TABLES), None);
        assert_eq!(memory.table_at(private, 0), None);
        memory.copy_top(shared, private, FlushRange::WHOLE);
        assert_eq!(memory.table_at(private, 0), memory.table_at(shared, 0));
        memory.map(Part::Window(1), 3, Some(2));
        let window = memory.table_at(private, TABLES).unwrap();
        assert_eq!(memory.walk(window, 3), Entry::Frame(2));
        let other = memory.table_at(memory.private_root(0), TABLES);
        assert_ne!(other, Some(window));
    }
}
