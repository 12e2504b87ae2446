//! A TLB that caches all that it may: what any page walk of its CPU could have found since the last flush that names it.

use crate::addr::{PAGE_BYTES, PhysAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::LocalFlush;
use std::collections::{BTreeMap, BTreeSet};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const TRACKED: u64 = 1 << 10;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const ENTRIES: usize = 512;
const LEVELS: u32 = 4;

/// An entry of a page table, as a processor reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(u64);

impl Entry {
    /// Of which frame.
    pub const fn frame(self) -> PhysAddr {
        PhysAddr::new(self.0 & ADDRESS)
    }

    /// Whether it lets programs write.
    pub const fn writes(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// Whether it lets programs write to a file's page.
    pub const fn writes_to_file(self) -> bool {
        self.writes() && self.0 & TRACKED != 0
    }

    /// Whether `now` still allows all that this one did.
    const fn is_within(self, now: Self) -> bool {
        self.0 & ADDRESS == now.0 & ADDRESS
            && self.0 & WRITABLE & !now.0 == 0
            && now.0 & NO_EXECUTE & !self.0 == 0
    }
}

/// A table that a walk goes through, and the addresses that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Table {
    frame: PhysAddr,
    start: usize,
    bytes: usize,
}

/// What one CPU may have cached of the root that it has loaded.
#[derive(Debug)]
pub struct Tlb {
    root: u64,
    leaves: BTreeSet<(usize, Entry)>,
    tables: BTreeSet<Table>,
    /// What a walk finds now.
    now: BTreeMap<usize, Entry>,
}

impl Tlb {
    /// Of a CPU that has no space loaded.
    pub const fn new() -> Self {
        Self {
            root: 0,
            leaves: BTreeSet::new(),
            tables: BTreeSet::new(),
            now: BTreeMap::new(),
        }
    }

    /// Loads a root, without a tag; 0 for none with anything in its user half.
    pub fn load(&mut self, root: u64) {
        *self = Self {
            root,
            ..Self::new()
        };
    }

    /// The loaded root; 0 for none.
    pub const fn root(&self) -> u64 {
        self.root
    }

    /// Drops what the operation names.
    pub fn flush(&mut self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, _) => {
                let (start, end) = (range.start(), range.end());
                self.leaves
                    .retain(|&(addr, _)| addr + PAGE_BYTES <= start || end <= addr);
                self.tables
                    .retain(|table| table.start + table.bytes <= start || end <= table.start);
            }
            _ => {
                self.leaves.clear();
                self.tables.clear();
            }
        }
    }

    /// Caches all that can be found now.
    pub fn walk(&mut self) {
        self.now.clear();
        if self.root != 0 {
            self.walk_table(PhysAddr::new(self.root), LEVELS - 1, 0, ENTRIES / 2);
        }
        let found = self.now.iter().map(|(&addr, &entry)| (addr, entry));
        self.leaves.extend(found);
    }

    fn walk_table(&mut self, table: PhysAddr, level: u32, base: usize, entries: usize) {
        let bytes = PAGE_BYTES << (9 * level);
        let cells = table.to_direct().cast::<u64>();
        for index in 0..entries {
            // SAFETY: inside a table of the simulated memory, whose words the kernel changes by atomics only.
            let raw =
                unsafe { AtomicU64::from_ptr(cells.wrapping_add(index)) }.load(Ordering::Acquire);
            if raw & PRESENT == 0 {
                continue;
            }
            let (entry, start) = (Entry(raw), base + index * bytes);
            if level == 0 {
                self.now.insert(start, entry);
                continue;
            }
            let frame = entry.frame();
            self.tables.insert(Table {
                frame,
                start,
                bytes,
            });
            self.walk_table(frame, level - 1, start, ENTRIES);
        }
    }

    /// What a walk for `addr` found last.
    pub fn entry(&self, addr: usize) -> Option<Entry> {
        self.now.get(&addr).copied()
    }

    /// What a walk found last.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Entry)> {
        self.now.iter().map(|(&addr, &entry)| (addr, entry))
    }

    /// All cached translations.
    pub fn cached(&self) -> impl Iterator<Item = (usize, Entry)> {
        self.leaves.iter().copied()
    }

    /// Cached translations that the page table does not bear out any more.
    pub fn stale(&self) -> impl Iterator<Item = (usize, Entry)> {
        let is_stale = |&(addr, entry): &(usize, Entry)| {
            !self.entry(addr).is_some_and(|now| entry.is_within(now))
        };
        self.cached().filter(is_stale)
    }

    /// Whether there is a table for this address.
    pub fn walks_to(&self, addr: usize) -> bool {
        let is_above = |table: &Table| table.start <= addr && addr < table.start + table.bytes;
        self.tables.iter().any(is_above)
    }

    /// Whether a walk may go through this frame as a table.
    pub fn walks(&self, frame: PhysAddr) -> bool {
        self.tables.iter().any(|table| table.frame == frame)
    }
}

impl Default for Tlb {
    fn default() -> Self {
        Self::new()
    }
}
