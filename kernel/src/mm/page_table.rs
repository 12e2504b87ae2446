//! [`PageTable`]: the 4-level table of one address space, as a tree of owned frames with shares at its leaves.
//!
//! It knows entries and frames, not areas and not invalidation: whoever empties or weakens an entry
//! gathers it for `invalidate`. All methods that change entries run under the lock of the address
//! space; processors walk and mark the same entries at any time, and other CPUs never follow a table
//! that the kernel has freed, because tables leave through [`prune`](PageTable::prune) into a
//! gathered flush only (I4).

use super::frames::{self, Frame, FrameChain, Share};
use super::layout::{PAGE_SIZE, PhysAddr, TOP_ENTRY_BYTES, USER_END, WINDOWS};
use super::pte::{Pte, PteCell};
use super::range::UserRange;
use crate::arch::paging;
#[cfg(feature = "isolation")]
use crate::arch::top;
use core::sync::atomic::{AtomicBool, Ordering};

const ENTRIES: usize = 512;
/// Root entries of the user half; those above belong to the kernel and are the same everywhere.
const USER_ENTRIES: usize = ENTRIES / 2;
/// The root's level; tables of level 0 hold leaves.
const ROOT_LEVEL: u32 = 3;
/// Tables that lead from the root to a leaf.
pub const TABLES_BELOW_ROOT: usize = ROOT_LEVEL as usize;

/// The root's entry for windows.
const WINDOWS_ENTRY: usize = entry_index(WINDOWS.start, ROOT_LEVEL);
const _: () = assert!(entry_bytes(ROOT_LEVEL) == TOP_ENTRY_BYTES);

/// Bytes of user memory that one table of leaves translates.
pub const LEAF_TABLE_BYTES: usize = entry_bytes(1);

type Cells = [PteCell; ENTRIES];

/// Bytes that one entry of a table of this level translates.
const fn entry_bytes(level: u32) -> usize {
    PAGE_SIZE << (9 * level)
}

/// Index of the entry for `addr` in a table of this level.
const fn entry_index(addr: usize, level: u32) -> usize {
    addr / entry_bytes(level) % ENTRIES
}

/// The table at `address`, for as long as `_owner` keeps it.
fn cells<T>(_owner: &T, address: PhysAddr) -> &Cells {
    // SAFETY: tables are whole frames, mapped in the direct map, full of initialized entries; every
    // table reachable from a root is freed only after it was unlinked under `&mut PageTable`.
    unsafe { &*address.to_direct().cast::<Cells>() }
}

/// The table of leaves for `addr` under `root`, or the level of the entry where the walk ends; for as long as `owner` keeps the tables.
fn leaves_under<T>(owner: &T, root: PhysAddr, addr: usize) -> Result<&Cells, u32> {
    let mut table = cells(owner, root);
    for level in (1..=ROOT_LEVEL).rev() {
        let next = table[entry_index(addr, level)]
            .load()
            .frame()
            .ok_or(level)?;
        #[cfg(feature = "breaks")]
        super::invalidate::breaks::reads_table(next);
        table = cells(owner, next);
    }
    Ok(table)
}

/// A page table. Dropping it frees all its tables and gives up its shares: no CPU may have it loaded.
#[derive(Debug)]
pub struct PageTable {
    root: PhysAddr,
    /// An entry of the root has changed since [`take_top_change`](Self::take_top_change).
    top_changed: AtomicBool,
    /// Tables that the root leads to stay, also those that serve nothing.
    keeps_top: bool,
}

impl PageTable {
    /// An empty user half under the kernel half that all roots share; `None` without memory.
    pub fn new() -> Option<Self> {
        let table = Self::bare()?;
        let kernel_half = paging::kernel_half();
        for (cell, raw) in cells(&table, table.root)[USER_ENTRIES..]
            .iter()
            .zip(kernel_half)
        {
            cell.fill(Pte::from_raw(raw));
        }
        #[cfg(feature = "isolation")]
        table.add_user_root()?;
        Some(table)
    }

    /// An empty table without the kernel half, for guests; `None` without memory.
    pub fn bare() -> Option<Self> {
        Some(Self {
            root: frames::alloc_zeroed()?.into_raw(),
            top_changed: AtomicBool::new(false),
            keeps_top: false,
        })
    }

    /// Makes the root that user mode has instead: the same user half, and of the kernel what entries need.
    #[cfg(feature = "isolation")]
    fn add_user_root(&self) -> Option<()> {
        let root = frames::alloc_zeroed()?.into_raw();
        let upper = cells(self, root)[USER_ENTRIES..].iter();
        upper
            .zip(paging::user_half())
            .for_each(|(cell, raw)| cell.fill(Pte::from_raw(raw)));
        top::set_user_root(self.root, root);
        Some(())
    }

    /// Puts `entry` into the user root, too, if there is one and the entry is one of roots. What the root itself has there then: no code, so that a way to user
    /// mode that forgot to load the other one gets nowhere.
    #[cfg(feature = "isolation")]
    fn mirror(&self, level: u32, index: usize, entry: Pte) -> Pte {
        match top::user_root(self.root).filter(|_| level == ROOT_LEVEL) {
            Some(root) => {
                cells(self, root)[index].fill(entry);
                entry.without_code()
            }
            None => entry,
        }
    }

    #[cfg(not(feature = "isolation"))]
    #[inline]
    fn mirror(&self, _: u32, _: usize, entry: Pte) -> Pte {
        entry
    }

    /// Physical address of the root table.
    pub const fn root(&self) -> PhysAddr {
        self.root
    }

    /// From now on entries of the root stay: CPUs that have [taken](super::reach) them need not do so again.
    pub fn keep_top(&mut self) {
        self.keeps_top = true;
    }

    /// Whether they do.
    pub const fn keeps_top(&self) -> bool {
        self.keeps_top
    }

    /// The leaf entry for the user address `addr`, with tables made on the way; `None` without memory.
    pub fn leaf_or_create(&mut self, addr: usize) -> Option<&PteCell> {
        self.leaf_or_put(addr, frames::alloc_zeroed)
    }

    /// The same; tables on the way are made of what `spare` has, which is zeroed. `None` if it has nothing left.
    pub fn leaf_or_put(
        &mut self,
        addr: usize,
        mut spare: impl FnMut() -> Option<Frame>,
    ) -> Option<&PteCell> {
        debug_assert!(addr < USER_END);
        let mut table = cells(self, self.root);
        for level in (1..=ROOT_LEVEL).rev() {
            let index = entry_index(addr, level);
            let cell = &table[index];
            let next = match cell.load().frame() {
                Some(next) => next,
                None => {
                    let next = spare()?.into_raw();
                    cell.fill(self.mirror(level, index, Pte::table(next)));
                    self.note_change(level);
                    next
                }
            };
            table = cells(self, next);
        }
        Some(&table[entry_index(addr, 0)])
    }

    /// Whether an entry of the root table has changed since this was last asked.
    pub fn take_top_change(&self) -> bool {
        self.top_changed.load(Ordering::Relaxed) && self.top_changed.swap(false, Ordering::Relaxed)
    }

    fn note_change(&self, level: u32) {
        if level == ROOT_LEVEL {
            self.top_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the entry of the root table for `addr` is in use.
    pub fn has_top(&self, addr: usize) -> bool {
        !cells(self, self.root)[entry_index(addr, ROOT_LEVEL)]
            .load()
            .is_empty()
    }

    /// Empties those entries of a private root that [`copy_top`](crate::arch::top::copy_top) filled: the tables are others'. No CPU has it loaded.
    pub fn forget_shared_top(&self) {
        for (index, cell) in cells(self, self.root)[..USER_ENTRIES].iter().enumerate() {
            if index != WINDOWS_ENTRY && !cell.load().is_empty() {
                cell.take();
            }
        }
    }

    /// The leaf entry for the user address `addr`, if its tables exist.
    pub fn leaf(&self, addr: usize) -> Option<&PteCell> {
        Some(&self.leaves(addr).ok()?[entry_index(addr, 0)])
    }

    /// The leaf entry for the user address `addr` in the tables under `root`, as it is now; `None` if there is no table for it. Needs no lock.
    ///
    /// # Safety
    /// 1. No table under `root` is freed meanwhile: the caller is in a walk of the space ([`UserMemory::walk`](shootdown::user_memory::UserMemory::walk)).
    pub unsafe fn peek(root: PhysAddr, addr: usize) -> Option<Pte> {
        let leaves = leaves_under(&(), root, addr).ok()?;
        Some(leaves[entry_index(addr, 0)].load())
    }

    /// The first address from `addr` on, below `end`, for which there is a table of leaves.
    pub fn next_leaves(&self, mut addr: usize, end: usize) -> Option<usize> {
        while addr < end {
            match self.leaves(addr) {
                Ok(_) => return Some(addr),
                Err(level) => addr = (addr | (entry_bytes(level) - 1)) + 1,
            }
        }
        None
    }

    /// Calls `visit` with the address and entry of every page of `range` that is not empty.
    pub fn visit(&self, range: UserRange, mut visit: impl FnMut(usize, &PteCell)) {
        let mut addr = range.start();
        while addr < range.end() {
            match self.leaves(addr) {
                Ok(leaves) => {
                    let chunk = (addr | (entry_bytes(1) - 1)) + 1;
                    let end = chunk.min(range.end());
                    let first = entry_index(addr, 0);
                    let pages = (end - addr) / PAGE_SIZE;
                    for (page, cell) in leaves[first..first + pages].iter().enumerate() {
                        if !cell.load().is_empty() {
                            visit(addr + page * PAGE_SIZE, cell);
                        }
                    }
                    addr = end;
                }
                Err(level) => addr = (addr | (entry_bytes(level) - 1)) + 1,
            }
        }
    }

    /// The table of leaves for `addr`, or the level of the entry where the walk ends.
    fn leaves(&self, addr: usize) -> Result<&Cells, u32> {
        leaves_under(self, self.root, addr)
    }

    /// Unlinks the tables that serve `range` and nothing outside the gap `below..above`, in which no
    /// area is left and all leaves are empty. `sink` gets the addresses that a table served (start
    /// and bytes) and the table, which it may free only after a flush with `FreedTables::Yes` (I4).
    pub fn prune(
        &mut self,
        range: UserRange,
        (below, above): (usize, usize),
        mut sink: impl FnMut(usize, usize, Frame),
    ) {
        let gap = Gap { below, above };
        self.prune_table(self.root, ROOT_LEVEL, 0, range, gap, &mut sink);
    }

    fn prune_table(
        &self,
        table: PhysAddr,
        level: u32,
        base: usize,
        range: UserRange,
        gap: Gap,
        sink: &mut impl FnMut(usize, usize, Frame),
    ) {
        let bytes = entry_bytes(level);
        let last = entry_index(range.end() - 1, level);
        for index in entry_index(range.start(), level)..=last {
            let cell = &cells(self, table)[index];
            let Some(child) = cell.load().frame() else {
                continue;
            };
            let start = base + index * bytes;
            let whole = gap.holds(start, bytes);
            // A child that goes as a whole gives up everything below it, not just what is in range.
            let inside =
                UserRange::from_bounds(start, (start + bytes).min(USER_END)).and_then(|span| {
                    if whole {
                        Some(span)
                    } else {
                        span.intersect(range)
                    }
                });
            if let Some(inside) = inside.filter(|_| level > 1) {
                self.prune_table(child, level - 1, start, inside, gap, sink);
            }
            if whole && !(level == ROOT_LEVEL && self.keeps_top) {
                debug_assert!(cells(self, child).iter().all(|cell| cell.load().is_empty()));
                cell.take();
                self.mirror(level, index, Pte::EMPTY);
                self.note_change(level);
                // SAFETY: 1. tables are usable frames. 2. the entry that owned it is empty now.
                sink(start, bytes, unsafe { Frame::from_raw(child) });
            }
        }
    }

    /// Takes all tables and shares of a table of this level out; what nobody owns any more goes into `freed`.
    fn dismantle(&self, table: PhysAddr, level: u32, entries: usize, freed: &mut FrameChain) {
        for cell in &cells(self, table)[..entries] {
            // Most are: a look is cheaper than an exchange.
            if cell.load().is_empty() {
                continue;
            }
            let Some(child) = cell.take().frame() else {
                continue;
            };
            if level == 0 {
                // SAFETY: 1. leaves hold usable frames. 2. the entry that had the share is empty.
                let share = unsafe { Share::from_raw(child) };
                share
                    .release()
                    .into_iter()
                    .for_each(|frame| freed.push(frame));
                continue;
            }
            self.dismantle(child, level - 1, ENTRIES, freed);
            // SAFETY: 1. tables are usable frames. 2. the entry that owned it is empty.
            freed.push(unsafe { Frame::from_raw(child) });
        }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        let mut freed = FrameChain::new();
        self.dismantle(self.root, ROOT_LEVEL, USER_ENTRIES, &mut freed);
        #[cfg(feature = "isolation")]
        if let Some(root) = top::user_root(self.root) {
            // SAFETY: 1. and 2.: as for the root below; the tables behind it are the same.
            freed.push(unsafe { Frame::from_raw(root) });
        }
        // SAFETY: 1. and 2.: `new` put the root's frame here; nothing uses it after this drop.
        freed.push(unsafe { Frame::from_raw(self.root) });
        frames::free_chain(freed);
    }
}

/// Addresses without areas.
#[derive(Clone, Copy)]
struct Gap {
    below: usize,
    above: usize,
}

impl Gap {
    fn holds(self, start: usize, bytes: usize) -> bool {
        self.below <= start && start + bytes <= self.above
    }
}
