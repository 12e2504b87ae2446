//! What a change has unlinked, until its flush has ended.

use shootdown::{FlushBatch, FlushRange, PageSize};

use crate::memory::Region;
use crate::pages::PAGES;

/// Most pages in one change: a bit more than the engine drops page by page, so that both ways are taken. With a table
/// the batch has one entry more.
pub(crate) const MOST_PAGES: usize = 40;
/// What a batch owns, by the names that the host gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unlinked {
    Frame(usize),
    Table(usize),
}

pub(crate) type Batch = FlushBatch<Unlinked, { MOST_PAGES + 1 }>;

/// Pages that a worker owns and has changed.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) region: Region,
    /// One bit a page.
    pub(crate) owned: u64,
    /// Zero for pages that were not changed.
    pub(crate) versions: [u64; PAGES],
}

impl Changed {
    pub(crate) fn nothing(region: Region) -> Self {
        Self {
            region,
            owned: 0,
            versions: [0; PAGES],
        }
    }

    /// Their numbers.
    pub(crate) fn owned_pages(&self) -> impl Iterator<Item = usize> {
        let mut word = self.owned;
        core::iter::from_fn(move || {
            let bit = word.checked_ilog2()?;
            word &= !(1 << bit);
            Some(bit as usize)
        })
    }
}

/// What a change without a batch has to flush, and the frames that are free afterwards.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) range: FlushRange,
    frames: [usize; MOST_PAGES],
    count: usize,
}

impl Default for Gone {
    fn default() -> Self {
        Self {
            range: FlushRange::pages(0, 0, PageSize::SIZE_4K),
            frames: [0; MOST_PAGES],
            count: 0,
        }
    }
}

impl Gone {
    pub(crate) fn add(&mut self, page: FlushRange, frame: Option<usize>) {
        self.range = self.range.union(&page);
        if let Some(frame) = frame {
            self.frames[self.count] = frame;
            self.count += 1;
        }
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = Unlinked> {
        self.frames[..self.count]
            .iter()
            .map(|frame| Unlinked::Frame(*frame))
    }
}
