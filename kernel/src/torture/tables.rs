//! Page tables whose leaf tables move while processors walk them.
//!
//! Each table of leaves translates [`PAGES_PER_TABLE`] pages at the beginning of 2 MiB; the next table of the next 2 MiB, and
//! of a space each third one of the next top-level entry. All tables are made once. All leaves are for the kernel only, in the user half too: so loads need
//! no user access, with SMAP or without.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use spin::Once;

use crate::addr::{PAGE_BYTES, PhysAddr};
use crate::mm::frames;
use crate::mm::layout::TOP_ENTRY_BYTES;
use crate::mm::pte::{Pte, PteCell};

/// Pages that one leaf table translates.
pub(super) const PAGES_PER_TABLE: usize = 16;
/// What one leaf table could translate.
const TABLE_BYTES: usize = 2 << 20;
/// Leaf tables of a space below one top-level entry.
const TABLES_PER_TOP: usize = 2;
const ENTRIES: usize = 512;

/// Page-table entry bits (SDM vol. 3A, "Paging-Structure Entries"): present, writable, accessed, dirty, no-execute.
const LEAF: u64 = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 63;
/// With isolation no page of the kernel's is global.
const GLOBAL: u64 = if cfg!(feature = "isolation") {
    0
} else {
    1 << 8
};

type Cells = [PteCell; ENTRIES];

/// Whether the pages of a region are global.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// Part of one space.
    Space,
    /// In every space.
    Global,
}

/// A table, for as long as nobody frees it: all tables of a run stay until the machine ends.
fn cells(table: PhysAddr) -> &'static Cells {
    // SAFETY: a whole frame that was zeroed when it was taken, in the direct map, which this module keeps for ever and
    // reads and writes as cells only.
    unsafe { &*table.to_direct().cast::<Cells>() }
}

/// A fresh table.
///
/// # Panics
/// Without memory: at the beginning of a run there is some.
fn new_table() -> PhysAddr {
    let frame = frames::alloc_zeroed().expect("memory for the torture's page tables");
    frame.into_raw()
}

/// The leaf tables of one region.
#[derive(Debug)]
pub(super) struct Leaves {
    base: usize,
    scope: Scope,
    /// The entries that point to the leaf tables, in order.
    above: Vec<&'static PteCell>,
    /// The names of the tables in use, see [`Tables`].
    names: [AtomicUsize; 4],
}

impl Leaves {
    /// Makes `count` leaf tables, and what is above them, for addresses from `base` on, under `root`.
    pub fn new(
        root: PhysAddr,
        base: usize,
        count: usize,
        scope: Scope,
        tables: &'static Tables,
    ) -> Self {
        let above = |index| {
            let start = table_start(base, index, scope);
            let cell_at = |table, level: usize| -> &'static PteCell {
                &cells(table)[start >> (12 + 9 * level) & (ENTRIES - 1)]
            };
            let table = [3, 2].into_iter().fold(root, |table, level| {
                let cell = cell_at(table, level);
                cell.load().frame().unwrap_or_else(|| {
                    let table = new_table();
                    cell.fill(Pte::table(table));
                    table
                })
            });
            cell_at(table, 1)
        };
        let leaves = Self {
            base,
            scope,
            above: (0..count).map(above).collect(),
            names: [const { AtomicUsize::new(0) }; 4],
        };
        for (cell, name) in leaves.above.iter().zip(&leaves.names) {
            assert!(cell.load().is_empty(), "{base:#x} is in use");
            let table = tables.take().expect("there are more tables than regions");
            cell.fill(Pte::table(tables.address(table)));
            name.store(table, Ordering::Relaxed);
        }
        leaves
    }

    pub fn pages(&self) -> usize {
        self.above.len() * PAGES_PER_TABLE
    }

    pub fn address(&self, page: usize) -> usize {
        let table = table_start(self.base, page / PAGES_PER_TABLE, self.scope);
        table + page % PAGES_PER_TABLE * PAGE_BYTES
    }

    /// Changes the entry of a page, whose owner the caller is.
    pub fn map(&self, tables: &Tables, page: usize, frame: Option<PhysAddr>) {
        let name = self.names[page / PAGES_PER_TABLE].load(Ordering::Relaxed);
        let cell = &cells(tables.address(name))[page % PAGES_PER_TABLE];
        cell.replace(frame.map_or(Pte::EMPTY, |frame| leaf(frame, self.scope)));
    }

    /// The name of the leaf table of a page, without a lock.
    pub fn table_of(&self, page: usize) -> usize {
        self.names[page / PAGES_PER_TABLE].load(Ordering::Relaxed)
    }

    /// Puts a copy in the place of the leaf table of a page; the caller owns all its pages. The name of the old one, or None
    /// when there is no table to spare.
    pub fn move_table(&self, tables: &Tables, page: usize) -> Option<usize> {
        let index = page / PAGES_PER_TABLE;
        let new = tables.take()?;
        let old = self.names[index].load(Ordering::Relaxed);
        for (to, from) in cells(tables.address(new))
            .iter()
            .zip(cells(tables.address(old)))
        {
            to.replace(from.load());
        }
        self.above[index].replace(Pte::table(tables.address(new)));
        self.names[index].store(new, Ordering::Relaxed);
        Some(old)
    }
}

/// What the leaf table `index` of those from `base` on translates first.
fn table_start(base: usize, index: usize, scope: Scope) -> usize {
    let (top, index) = match scope {
        Scope::Space => (index / TABLES_PER_TOP, index % TABLES_PER_TOP),
        Scope::Global => (0, index),
    };
    base + top * TOP_ENTRY_BYTES + index * TABLE_BYTES
}

pub(super) fn leaf(frame: PhysAddr, scope: Scope) -> Pte {
    let global = match scope {
        Scope::Space => 0,
        Scope::Global => GLOBAL,
    };
    Pte::from_raw(frame.as_u64() | LEAF | global)
}

/// How many leaf tables there are, in use or not; one bit each in a word.
const TABLES: usize = 32;

/// All leaf tables.
#[derive(Debug)]
pub(super) struct Tables {
    addresses: Once<[PhysAddr; TABLES]>,
    /// One bit for each table that is in no use.
    free: AtomicUsize,
    /// What freed tables lead to.
    poison: Once<PhysAddr>,
}

impl Tables {
    pub const fn new() -> Self {
        Self {
            addresses: Once::new(),
            free: AtomicUsize::new(0),
            poison: Once::new(),
        }
    }

    /// Makes them. Whoever still walks a table that was freed comes to the frame `poison`.
    pub fn stock(&self, poison: PhysAddr) {
        self.poison.call_once(|| poison);
        self.addresses
            .call_once(|| core::array::from_fn(|_| new_table()));
        // ORDERING: publishes the tables; pairs with the acquire in `take`.
        self.free.store((1 << TABLES) - 1, Ordering::Release);
    }

    fn address(&self, name: usize) -> PhysAddr {
        self.addresses.get().expect("stocked before use")[name]
    }

    fn take(&self) -> Option<usize> {
        let take_lowest = |free: usize| (free != 0).then_some(free & (free - 1));
        // ORDERING: sees what was done to the table before it was freed; pairs with the release in `give`.
        let before = self
            .free
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, take_lowest);
        before.ok().map(|free| free.trailing_zeros() as usize)
    }

    /// Makes a table useless that nobody may walk any more, and free.
    pub fn give(&self, name: usize) {
        let poison = leaf(
            *self.poison.get().expect("stocked before use"),
            Scope::Space,
        );
        for cell in cells(self.address(name)) {
            cell.replace(poison);
        }
        // ORDERING: publishes the poisoned entries; pairs with the acquire in `take`.
        self.free.fetch_or(1 << name, Ordering::Release);
    }
}
