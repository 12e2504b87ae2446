//! Which frame is where, in which version, and what loads may still find.

use core::ops::RangeInclusive;

use crate::memory::Region;
use crate::sync::{Plain, Tally};

/// Most spaces that are used.
pub const SPACES: usize = 4;
/// Most pages of a region that are used.
pub const PAGES: usize = 64;
/// Most pages of a CPU's windows that are used.
pub const WINDOW_PAGES: usize = 8;
/// Most frames that are used.
pub const FRAMES: usize = 384;

/// Marks words that are in no use; the low bits are the frame's number.
const POISON: u64 = 0xdead << 48;
const MAGIC: u64 = 0x5d << 56;
const VERSION_BITS: u32 = 40;
/// No page gets as far.
pub(crate) const NEWEST: u64 = (1 << VERSION_BITS) - 1;

/// What the frame of a page holds: which page it is, and which version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    region: usize,
    page: usize,
    version: u64,
}

impl Tag {
    /// Version in the low 40 bits, page in 8, region in 8, then the magic.
    pub(crate) fn word(self) -> u64 {
        MAGIC | (self.region as u64) << 48 | (self.page as u64) << 40 | self.version & NEWEST
    }
}

/// What a frame holds after it was given back.
pub(crate) fn poison(frame: usize) -> u64 {
    POISON | frame as u64
}

/// Nobody's page, and nothing is mapped there, nor cached: whoever takes it may map something without a flush.
const UNMAPPED: u64 = 0;
/// A worker's page, which it may change. So is one that it has unmapped, until the flush is over.
const OWNED: u64 = 1;
/// Nobody's page, with a frame.
const MAPPED: u64 = 2;

/// The torture's own view of one page.
#[derive(Debug)]
struct Page {
    owner: Tally,
    /// Frame number plus one.
    frame: Plain,
    version: Tally,
    /// The oldest version that loads may find: raised when a flush has finished.
    oldest: Tally,
}

/// The books of all regions.
#[derive(Debug)]
pub(crate) struct Pages<const N: usize> {
    pages: [[Page; PAGES]; SPACES + 1],
    windows: [[Page; WINDOW_PAGES]; N],
    free: [Tally; FRAMES / 64],
}

impl Page {
    const fn new() -> Self {
        Self {
            owner: Tally::new(UNMAPPED),
            frame: Plain::new(),
            version: Tally::new(0),
            oldest: Tally::new(0),
        }
    }
}

/// Windows of this many CPUs can be told apart by what their frames hold.
const WINDOW_TAGS: usize = 200;

/// What a load has found wrong: the version that it may find at least, and what it found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// A frame that is in no use, or in use elsewhere.
    Reused(u64, u64),
    /// An older version.
    Stale(u64, u64),
}

impl Region {
    /// In tags.
    const fn index(self) -> usize {
        match self {
            Self::Space(index) => index,
            Self::Kernel => SPACES,
            Self::Window(cpu) => SPACES + 1 + cpu % WINDOW_TAGS,
        }
    }
}

impl<const N: usize> Pages<N> {
    pub(crate) const fn new() -> Self {
        Self {
            pages: [const { [const { Page::new() }; PAGES] }; SPACES + 1],
            windows: [const { [const { Page::new() }; WINDOW_PAGES] }; N],
            free: [const { Tally::new(0) }; FRAMES / 64],
        }
    }

    fn page(&self, region: Region, page: usize) -> &Page {
        match region {
            Region::Space(index) => &self.pages[index][page],
            Region::Kernel => &self.pages[SPACES][page],
            Region::Window(cpu) => &self.windows[cpu][page],
        }
    }

    /// The first `count` frames may be used.
    pub(crate) fn stock(&self, count: usize) {
        for frame in 0..count.min(FRAMES) {
            self.free[frame / 64].give_bit((frame % 64) as u32);
        }
    }

    /// A frame that is in no use, if there is one; `hint` says where to look first.
    pub(crate) fn take_frame(&self, hint: u64) -> Option<usize> {
        let words = self.free.len();
        let first = hint as usize % words;
        (0..words).map(|i| (first + i) % words).find_map(|word| {
            let bit = self.free[word].take_bit()?;
            Some(word * 64 + bit as usize)
        })
    }

    /// True if it was out.
    pub(crate) fn give_frame(&self, frame: usize) -> bool {
        self.free[frame / 64].give_bit((frame % 64) as u32)
    }

    /// Makes the page this worker's, if it is nobody's.
    pub(crate) fn try_own(&self, region: Region, page: usize) -> bool {
        let owner = &self.page(region, page).owner;
        owner.take_from(MAPPED, OWNED) || owner.take_from(UNMAPPED, OWNED)
    }

    /// The same if nothing is mapped there.
    pub(crate) fn try_own_unmapped(&self, region: Region, page: usize) -> bool {
        self.page(region, page).owner.take_from(UNMAPPED, OWNED)
    }

    /// The frame of an owned page.
    pub(crate) fn frame(&self, region: Region, page: usize) -> Option<usize> {
        (self.page(region, page).frame.get() as usize).checked_sub(1)
    }

    /// Ends what [`try_own`](Self::try_own) began.
    pub(crate) fn disown(&self, region: Region, page: usize) {
        let is_mapped = self.frame(region, page).is_some();
        let owner = &self.page(region, page).owner;
        owner.publish(if is_mapped { MAPPED } else { UNMAPPED });
    }

    /// Counts a change of an owned page to `frame`, or to none; returns the frame that it had, and the version that it has now.
    pub(crate) fn change(
        &self,
        region: Region,
        page: usize,
        frame: Option<usize>,
    ) -> (Option<usize>, Tag) {
        let book = self.page(region, page);
        let before = self.frame(region, page);
        book.frame.set(frame.map_or(0, |frame| frame as u64 + 1));
        let version = book.version.get() + 1;
        book.version.set(version);
        let tag = Tag {
            region: region.index(),
            page,
            version,
        };
        (before, tag)
    }

    /// The newest version of an owned page.
    pub(crate) fn version(&self, region: Region, page: usize) -> u64 {
        self.page(region, page).version.get()
    }

    /// A flush has finished: nothing older than `version` may be found from now on.
    pub(crate) fn settle(&self, region: Region, page: usize, version: u64) {
        self.page(region, page).oldest.raise(version);
    }

    /// The oldest version that a load that begins now may find.
    pub(crate) fn oldest(&self, region: Region, page: usize) -> u64 {
        self.page(region, page).oldest.get_published()
    }
}

/// Judges the word that a load found. The oldest version was read before it; the newest is known to who owns the page.
pub(crate) fn judge(
    region: Region,
    page: usize,
    versions: RangeInclusive<u64>,
    found: u64,
) -> Result<(), Wrong> {
    let [expected, newest] = [*versions.start(), *versions.end()].map(|version| {
        let region = region.index();
        Tag {
            region,
            page,
            version,
        }
        .word()
    });
    if found >> VERSION_BITS != expected >> VERSION_BITS || found > newest {
        Err(Wrong::Reused(expected, found))
    } else if found < expected {
        Err(Wrong::Stale(expected, found))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_page_version_and_poison_apart() {
        let region = Region::Space(1);
        let word = |page, version| {
            Tag {
                region: 1,
                page,
                version,
            }
            .word()
        };
        assert_eq!(judge(region, 3, 5..=NEWEST, word(3, 5)), Ok(()));
        assert_eq!(judge(region, 3, 5..=NEWEST, word(3, 6)), Ok(()));
        let wrong = |found| judge(region, 3, 5..=6, found).unwrap_err();
        assert!(matches!(wrong(word(3, 4)), Wrong::Stale(..)));
        assert!(matches!(wrong(word(4, 6)), Wrong::Reused(..)));
        assert!(matches!(wrong(poison(3)), Wrong::Reused(..)));
        assert!(matches!(wrong(word(3, 7)), Wrong::Reused(..)));
        assert!(judge(Region::Kernel, 3, 5..=NEWEST, word(3, 6)).is_err());
    }

    #[test]
    fn frames_are_given_out_once() {
        let pages = Pages::<1>::new();
        pages.stock(70);
        let mut taken = 0;
        while let Some(frame) = pages.take_frame(taken) {
            assert!(frame < 70);
            taken += 1;
        }
        assert_eq!(taken, 70);
        assert!(pages.give_frame(5) && !pages.give_frame(5));
    }
}
