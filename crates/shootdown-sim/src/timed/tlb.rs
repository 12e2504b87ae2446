//! [`Tlb`]: the data TLB of one CPU, in two levels, and its paging-structure caches.
//!
//! Pages are numbers of 4 KiB pages. Entries carry the tag (x86: PCID) of the root that was loaded when
//! they were made, as in Intel SDM 4.10.

use shootdown::{
    FlushRange,
    tags::{Asid, TagEntries},
};

use crate::timed::cache::{Cache, Entry, Replacement};
use crate::timed::{Costs, TlbCounts, TlbShape};
use crate::walkthrough::{Fact, Key, Value};

/// Page numbers count pages of 4 KiB.
const PAGE_SHIFT: usize = 12;
/// Levels of a walk: four entries are read where nothing is cached.
const WALK_LEVELS: usize = 4;
/// Bits of a page number that one level resolves.
const LEVEL_BITS: u32 = 9;

/// Translations of the kernel's pages have it where they are global: no load of a root drops them.
const GLOBAL: Asid = Asid::new(1 << 13);
/// The first page of the kernel's half.
const KERNEL_PAGES: u64 = 1 << 47 >> PAGE_SHIFT;
/// A tag's number and this is that of its user side, where tags are split. PCIDs have 12 bits.
const USER_SIDE: u16 = 1 << 12;

/// The tag that user mode has beside `tag`, where tags are split.
pub(super) fn user_side(tag: Asid) -> Asid {
    match tag {
        Asid::UNTAGGED => tag,
        _ => Asid::new(tag.as_u16() | USER_SIDE),
    }
}

/// The tag of which this is one side.
pub(super) fn kernel_side(tag: Asid) -> Asid {
    Asid::new(tag.as_u16() & !USER_SIDE)
}

/// How an access found its translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Translation {
    /// A cached one, which may be older than the page tables: the frame.
    Cached(u64),
    /// A walk: the frame in the page tables.
    Walked(u64),
    /// A walk that found no page.
    Fault,
}

/// The translations that one CPU has cached.
#[derive(Clone, Debug)]
pub struct Tlb {
    /// The tags that may have entries, the loaded one first.
    tags: Vec<Asid>,
    /// Whether each tag has a user side, and no page is global.
    pub(super) splits_tags: bool,
    counts: TlbCounts,
    first: Cache,
    second: Cache,
    /// Entries of the page-directory, pointer and top level, each fully associative.
    walk: [Cache; WALK_LEVELS - 1],
}

impl Default for Tlb {
    fn default() -> Self {
        Self {
            tags: vec![Asid::UNTAGGED],
            splits_tags: false,
            counts: TlbCounts::default(),
            first: Cache::default(),
            second: Cache::default(),
            walk: Default::default(),
        }
    }
}

impl Tlb {
    /// Translates `page`, which the page tables map to `mapped`; returns what was found and its price.
    pub fn translate(
        &mut self,
        costs: &Costs,
        page: u64,
        mapped: Option<u64>,
    ) -> (Translation, u64) {
        let (shape, tag) = (costs.tlb, self.tag_of(page));
        if let Some(entry) = self.first.find(shape.l1_sets, tag, page) {
            return (Translation::Cached(entry.frame), 0);
        }
        self.counts.l1_misses += 1;
        if let Some(entry) = self.second.find(shape.l2_sets, tag, page) {
            self.first.put(shape.first(), shape.replacement, entry);
            return (Translation::Cached(entry.frame), costs.tlb_l2_hit_ps);
        }
        let steps = self.walk(&shape, page) as u64;
        self.counts.walks += 1;
        self.counts.walk_steps += steps;
        let price = steps * costs.walk_step_ps;
        let Some(frame) = mapped else {
            return (Translation::Fault, price);
        };
        let entry = Entry { tag, page, frame };
        self.second.put(shape.second(), shape.replacement, entry);
        self.first.put(shape.first(), shape.replacement, entry);
        (Translation::Walked(frame), price)
    }

    /// How many entries a walk reads; it leaves the upper ones in the paging-structure caches.
    fn walk(&mut self, shape: &TlbShape, page: u64) -> usize {
        let tag = self.tag_of(page);
        let known = (0..WALK_LEVELS - 1)
            .find(|level| {
                self.walk[*level]
                    .find(1, tag, upper(page, *level))
                    .is_some()
            })
            .unwrap_or(WALK_LEVELS - 1);
        for level in 0..known {
            let entry = Entry {
                tag,
                page: upper(page, level),
                frame: 0,
            };
            self.walk[level].put((1, shape.walk_entries), Replacement::LeastRecent, entry);
        }
        known + 1
    }

    /// Drops pages of a tag, and every paging-structure entry of that tag (SDM 4.10.4.1, INVLPG).
    pub fn drop_pages(&mut self, costs: &Costs, tag: Asid, range: FlushRange) {
        let pages = range.start() >> PAGE_SHIFT..range.end().div_ceil(1 << PAGE_SHIFT);
        for page in pages {
            self.first.drop_page(costs.tlb.l1_sets, tag, page as u64);
            self.second.drop_page(costs.tlb.l2_sets, tag, page as u64);
        }
        self.walk.iter_mut().for_each(|level| level.drop_tag(tag));
    }

    /// Drops everything of a tag.
    pub fn drop_tag(&mut self, tag: Asid) {
        self.caches().for_each(|cache| cache.drop_tag(tag));
    }

    /// Drops everything.
    pub fn drop_all(&mut self) {
        self.caches().for_each(Cache::clear);
    }

    /// The tag of the translations of `page`.
    fn tag_of(&self, page: u64) -> Asid {
        match page >= KERNEL_PAGES && !self.splits_tags {
            true => GLOBAL,
            false => self.tag(),
        }
    }

    /// The tag that is loaded.
    pub fn tag(&self) -> Asid {
        self.tags[0]
    }

    /// All translations of pages, for those who look at them.
    pub(super) fn add_facts(&self, cpu: usize, facts: &mut Vec<Fact>) {
        let entries = self.second.entries().chain(self.first.entries());
        facts.extend(entries.map(|entry| {
            let key = Key::Leaf(cpu, entry.page, Some(entry.tag.as_u16()));
            let (frame, writable) = (entry.frame, true);
            (key, Value::Frame { frame, writable })
        }));
    }

    /// What was counted so far.
    pub fn counts(&self) -> TlbCounts {
        self.counts
    }

    /// Loads a root with this tag; drops what the tag has cached unless it is to be kept.
    pub fn load(&mut self, shape: &TlbShape, tag: Asid, entries: TagEntries) {
        match self.tags.iter().position(|known| *known == tag) {
            Some(index) => self.tags[..=index].rotate_right(1),
            None => self.tags.insert(0, tag),
        }
        if entries == TagEntries::Drop {
            self.drop_tag(tag);
        }
        while self.tags.len() > shape.tags {
            let forgotten = self.tags.pop().expect("the loaded tag is there");
            self.drop_tag(forgotten);
        }
    }

    fn caches(&mut self) -> impl Iterator<Item = &mut Cache> {
        [&mut self.first, &mut self.second]
            .into_iter()
            .chain(&mut self.walk)
    }
}

/// Which entry of an upper level leads to `page`; level 0 is the page directory.
fn upper(page: u64, level: usize) -> u64 {
    page >> (LEVEL_BITS * (level as u32 + 1))
}

#[cfg(test)]
mod tests {
    use shootdown::PageSize;

    use super::*;
    use TagEntries::{Drop, Keep};
    use Translation::{Cached, Fault, Walked};

    fn costs() -> Costs {
        Costs {
            tlb: TlbShape {
                l1_sets: 1,
                l1_ways: 2,
                l2_sets: 2,
                l2_ways: 2,
                walk_entries: 2,
                tags: 3,
                ..TlbShape::default()
            },
            tlb_l2_hit_ps: 7,
            walk_step_ps: 10,
            ..Costs::default()
        }
    }

    #[test]
    fn a_miss_walks_and_a_hit_is_free() {
        let (costs, mut tlb) = (costs(), Tlb::default());
        assert_eq!(tlb.translate(&costs, 5, None), (Fault, 40));
        assert_eq!(tlb.translate(&costs, 5, Some(1)), (Walked(1), 10));
        assert_eq!(tlb.translate(&costs, 5, Some(1)), (Cached(1), 0));
        assert_eq!(tlb.translate(&costs, 6, Some(2)), (Walked(2), 10));
        // Another page directory, then another pointer table.
        assert_eq!(tlb.translate(&costs, 1 << 9, Some(3)), (Walked(3), 20));
        assert_eq!(tlb.translate(&costs, 1 << 18, Some(3)), (Walked(3), 30));
    }

    #[test]
    fn the_first_level_evicts_into_the_second_and_the_second_for_good() {
        let (costs, mut tlb) = (costs(), Tlb::default());
        for page in [0, 1, 2] {
            tlb.translate(&costs, page, Some(page));
        }
        assert_eq!(tlb.translate(&costs, 0, None), (Cached(0), 7));
        // The second level has one set of two ways for even pages.
        tlb.translate(&costs, 4, Some(4));
        tlb.translate(&costs, 6, Some(6));
        assert_eq!(tlb.translate(&costs, 0, None), (Fault, 10));
    }

    #[test]
    fn the_least_recently_used_entry_goes() {
        let (costs, mut tlb) = (costs(), Tlb::default());
        tlb.translate(&costs, 0, Some(0));
        tlb.translate(&costs, 1, Some(1));
        tlb.translate(&costs, 0, Some(0));
        tlb.translate(&costs, 3, Some(3));
        assert_eq!(tlb.translate(&costs, 0, Some(0)), (Cached(0), 0));
        assert_eq!(tlb.translate(&costs, 1, Some(1)), (Cached(1), 7));
    }

    #[test]
    fn dropping_a_page_drops_the_walk_caches_of_its_tag() {
        let (costs, mut tlb) = (costs(), Tlb::default());
        tlb.translate(&costs, 5, Some(1));
        tlb.translate(&costs, 6, Some(2));
        let fifth = FlushRange::pages(5 << PAGE_SHIFT, 1, PageSize::SIZE_4K);
        tlb.drop_pages(&costs, Asid::UNTAGGED, fifth);
        assert_eq!(tlb.translate(&costs, 6, None), (Cached(2), 0));
        assert_eq!(tlb.translate(&costs, 5, None), (Fault, 40));
    }

    #[test]
    fn tags_keep_entries_apart_and_alive() {
        let (costs, mut tlb) = (costs(), Tlb::default());
        tlb.translate(&costs, 5, Some(1));
        let (three, shape) = (Asid::new(3), &costs.tlb);
        tlb.load(shape, three, Keep);
        assert_eq!(tlb.translate(&costs, 5, Some(9)), (Walked(9), 40));
        tlb.load(shape, Asid::UNTAGGED, Keep);
        assert_eq!(tlb.translate(&costs, 5, None), (Cached(1), 0));
        tlb.drop_tag(three);
        tlb.load(shape, three, Keep);
        assert_eq!(tlb.translate(&costs, 5, None), (Fault, 40));
        tlb.load(shape, Asid::UNTAGGED, Drop);
        assert_eq!(tlb.translate(&costs, 5, None), (Fault, 40));
        tlb.translate(&costs, 5, Some(1));
        tlb.drop_all();
        assert_eq!(tlb.translate(&costs, 5, None), (Fault, 40));
    }

    #[test]
    fn one_tag_too_many_costs_the_oldest_its_entries() {
        for (others, found) in [(1..=2, Cached(1)), (1..=3, Fault)] {
            let (costs, mut tlb) = (costs(), Tlb::default());
            tlb.translate(&costs, 5, Some(1));
            for tag in others {
                tlb.load(&costs.tlb, Asid::new(tag), Keep);
            }
            tlb.load(&costs.tlb, Asid::UNTAGGED, Keep);
            assert_eq!(tlb.translate(&costs, 5, None).0, found);
        }
    }

    #[test]
    fn misses_walks_and_steps_are_counted() {
        let (costs, mut tlb) = (costs(), Tlb::default());
        for page in [0, 1, 2, 0, 0] {
            tlb.translate(&costs, page, Some(1));
        }
        let counts = TlbCounts {
            l1_misses: 4,
            walks: 3,
            walk_steps: 6,
        };
        assert_eq!(tlb.counts(), counts);
    }
}
