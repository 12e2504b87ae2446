//! [`Tlb`]: the translation cache of one CPU, which keeps whatever it may, and fills itself ahead of time.
//!
//! It caches, for each tag, the tables that the root names and the entries of pages, and for all tags together the
//! entries of the kernel's part. A miss loads the whole table, as a processor that guesses would.

use std::sync::atomic::{AtomicU32, Ordering};

use shootdown::{
    FlushRange, LocalFlush,
    tags::{Asid, TagEntries},
};

use crate::entry::Entry;
use crate::memory::{Memory, PAGES, PAGES_PER_TABLE, Part, SPAN, TABLES, TOP};

/// Hardware tags of a CPU besides the untagged one.
pub(crate) const TAGS: usize = 6;
/// The root without a user part.
const NO_USER: u32 = 0;
/// Nothing is cached. Cached words are the table's or frame's number, plus one.
const NOTHING: u32 = 0;

/// What one tag has cached. Only its CPU looks, with interrupts off.
#[derive(Debug)]
struct Cached {
    tables: [AtomicU32; TOP],
    pages: [AtomicU32; SPAN],
}

#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Tlb {
    root: AtomicU32,
    tag: AtomicU32,
    tags: [Cached; TAGS + 1],
    kernel: [AtomicU32; PAGES],
}

impl Cached {
    const fn new() -> Self {
        Self {
            tables: [const { AtomicU32::new(NOTHING) }; TOP],
            pages: [const { AtomicU32::new(NOTHING) }; SPAN],
        }
    }

    fn drop_all(&self) {
        drop_entries(&self.tables);
        drop_entries(&self.pages);
    }
}

fn drop_entries(entries: &[AtomicU32]) {
    for entry in entries {
        entry.store(NOTHING, Ordering::Relaxed);
    }
}

impl Tlb {
    pub(crate) const fn new() -> Self {
        Self {
            root: AtomicU32::new(NO_USER),
            tag: AtomicU32::new(0),
            tags: [const { Cached::new() }; TAGS + 1],
            kernel: [const { AtomicU32::new(NOTHING) }; PAGES],
        }
    }

    fn loaded(&self) -> &Cached {
        &self.tags[self.tag.load(Ordering::Relaxed) as usize]
    }

    /// In the order of contract 4: what another tag holds is dropped before it is loaded.
    pub(crate) fn load_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        if entries == TagEntries::Drop {
            self.tags[usize::from(asid.as_u16())].drop_all();
        }
        self.root.store(root as u32, Ordering::Relaxed);
        self.tag.store(u32::from(asid.as_u16()), Ordering::Relaxed);
        if entries == TagEntries::Drop {
            self.loaded().drop_all();
        }
    }

    pub(crate) fn flush(&self, operation: LocalFlush) {
        match operation {
            // The tables are dropped too, freed or not.
            LocalFlush::Pages(range, _) => self.flush_pages(&range),
            LocalFlush::Space => self.loaded().drop_all(),
            LocalFlush::All => {
                self.tags.iter().for_each(Cached::drop_all);
                drop_entries(&self.kernel);
            }
        }
    }

    fn flush_pages(&self, range: &FlushRange) {
        for address in range.iter_pages() {
            if let Some(page) = Memory::page_at(Part::Kernel, address) {
                self.kernel[page].store(NOTHING, Ordering::Relaxed);
            }
            let page = Memory::page_at(Part::Space(0), address);
            let window = Memory::page_at(Part::Window(0), address);
            if let Some(page) = page.or(window.map(|page| page + PAGES)) {
                let loaded = self.loaded();
                loaded.pages[page].store(NOTHING, Ordering::Relaxed);
                loaded.tables[page / PAGES_PER_TABLE].store(NOTHING, Ordering::Relaxed);
            }
        }
    }

    /// The entry of a page under the loaded root; those of windows come after those of the space.
    pub(crate) fn translate(&self, memory: &Memory, is_kernel: bool, page: usize) -> Entry {
        let cached: &[AtomicU32] = match is_kernel {
            true => &self.kernel,
            false => &self.loaded().pages,
        };
        let hit = cached[page].load(Ordering::Relaxed);
        if hit != NOTHING {
            return Entry::Frame(hit - 1);
        }
        let Some(table) = self.table(memory, is_kernel, page / PAGES_PER_TABLE) else {
            return Entry::Unmapped;
        };
        self.fill(memory, cached, table, page / PAGES_PER_TABLE);
        match cached[page].load(Ordering::Relaxed) {
            NOTHING => memory.walk(table, page),
            frame => Entry::Frame(frame - 1),
        }
    }

    /// Caches what is not cached yet of a whole table.
    fn fill(&self, memory: &Memory, cached: &[AtomicU32], table: usize, slot: usize) {
        let first = slot * PAGES_PER_TABLE;
        let pages = cached[first..][..PAGES_PER_TABLE].iter();
        for (page, entry) in (first..).zip(pages) {
            let walked = memory.walk(table, page);
            if let (Entry::Frame(frame), NOTHING) = (walked, entry.load(Ordering::Relaxed)) {
                entry.store(frame + 1, Ordering::Relaxed);
            }
        }
    }

    /// The table of pages, cached or from the loaded root; none if the root has no user part.
    fn table(&self, memory: &Memory, is_kernel: bool, slot: usize) -> Option<usize> {
        if is_kernel {
            return Some(memory.table_of(Part::Kernel, slot));
        }
        let root = self.root.load(Ordering::Relaxed);
        if root == NO_USER {
            return None;
        }
        let cached = &self.loaded().tables[slot];
        if cached.load(Ordering::Relaxed) == NOTHING {
            let table = memory.table_at(root.into(), slot)? as u32;
            cached.store(table + 1, Ordering::Relaxed);
        }
        Some(cached.load(Ordering::Relaxed) as usize - 1)
    }

    /// Walks ahead of time all that the loaded root leads to, by the tables that are cached: what a processor may do at
    /// any time, also while its CPU is lazy.
    pub(crate) fn guess(&self, memory: &Memory) {
        let parts: [(bool, &[AtomicU32], usize); 2] = [
            (false, &self.loaded().pages, TOP),
            (true, &self.kernel, TABLES),
        ];
        for (is_kernel, cached, slots) in parts {
            for slot in 0..slots {
                if let Some(table) = self.table(memory, is_kernel, slot) {
                    self.fill(memory, cached, table, slot);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shootdown::{FreedTables, PageSize};

    use super::*;

    fn mapped() -> (Memory, Tlb) {
        let (memory, tlb) = (Memory::new(2, 8, 1), Tlb::new());
        for (part, frame) in [(Part::Space(0), 1), (Part::Space(1), 2), (Part::Kernel, 3)] {
            memory.map(part, 5, Some(frame));
        }
        (memory, tlb)
    }

    fn enter(tlb: &Tlb, space: usize, entries: TagEntries) {
        let asid = Asid::new(space as u16 + 1);
        tlb.load_root(Memory::root_of(space), asid, entries);
    }

    #[test]
    fn it_keeps_what_nobody_flushes() {
        let (memory, tlb) = mapped();
        enter(&tlb, 0, TagEntries::Drop);
        assert_eq!(tlb.translate(&memory, false, 5), Entry::Frame(1));
        memory.map(Part::Space(0), 5, None);
        assert_eq!(tlb.translate(&memory, false, 5), Entry::Frame(1));
        let page = FlushRange::pages(5 * 4096, 1, PageSize::SIZE_4K);
        tlb.flush(LocalFlush::Pages(page, FreedTables::No));
        assert_eq!(tlb.translate(&memory, false, 5), Entry::Unmapped);
    }

    #[test]
    fn tags_keep_their_entries_and_lose_them_when_told() {
        let (memory, tlb) = mapped();
        enter(&tlb, 0, TagEntries::Drop);
        tlb.guess(&memory);
        enter(&tlb, 1, TagEntries::Drop);
        assert_eq!(tlb.translate(&memory, false, 5), Entry::Frame(2));
        memory.map(Part::Space(0), 5, Some(7));
        enter(&tlb, 0, TagEntries::Keep);
        assert_eq!(tlb.translate(&memory, false, 5), Entry::Frame(1));
        enter(&tlb, 0, TagEntries::Drop);
        assert_eq!(tlb.translate(&memory, false, 5), Entry::Frame(7));
    }

    #[test]
    fn the_kernels_part_survives_a_flush_of_the_space() {
        let (memory, tlb) = mapped();
        enter(&tlb, 0, TagEntries::Drop);
        assert_eq!(tlb.translate(&memory, true, 5), Entry::Frame(3));
        memory.map(Part::Kernel, 5, Some(4));
        tlb.flush(LocalFlush::Space);
        assert_eq!(tlb.translate(&memory, true, 5), Entry::Frame(3));
        tlb.flush(LocalFlush::All);
        assert_eq!(tlb.translate(&memory, true, 5), Entry::Frame(4));
    }

    #[test]
    fn a_cached_table_is_walked_after_it_was_freed() {
        let (memory, tlb) = mapped();
        enter(&tlb, 0, TagEntries::Drop);
        tlb.guess(&memory);
        let old = memory.move_table(0, 0).unwrap();
        memory.free_table(old);
        assert_eq!(tlb.translate(&memory, false, 6), Entry::Freed);
        tlb.flush(LocalFlush::Space);
        assert_eq!(tlb.translate(&memory, false, 6), Entry::Unmapped);
    }
}
