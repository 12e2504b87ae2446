//! What a change has unlinked, until its flush has ended.

use shootdown::{FlushBatch, FlushRange};

use crate::memory::Region;
use crate::pages::PAGES;
use crate::rng::mix;

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
    /// How much a batch was given, and what that was.
    pub(crate) given: Sum,
}

/// Tells what a ticket gives back from what its batch was given, in whatever order: how much it is, and the sum of its names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    names: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, it: Unlinked) {
        self.count += 1;
        let name = match it {
            Unlinked::Frame(frame) => frame as u64,
            Unlinked::Table(table) => !(table as u64),
        };
        self.names = self.names.wrapping_add(mix(name));
    }
}

impl Changed {
    pub(crate) fn nothing(region: Region) -> Self {
        Self {
            region,
            owned: 0,
            versions: [0; PAGES],
            given: Sum::default(),
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
            range: FlushRange::EMPTY,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(frames: &[usize]) -> Sum {
        let mut sum = Sum::default();
        frames.iter().for_each(|it| sum.add(Unlinked::Frame(*it)));
        sum
    }

    #[test]
    fn a_ticket_that_gives_back_something_else_is_told() {
        assert_eq!(sum(&[3, 8]), sum(&[8, 3]));
        for other in [&[3, 7][..], &[3], &[3, 8, 8], &[3, 3]] {
            assert_ne!(sum(&[3, 8]), sum(other));
        }
        let mut table = Sum::default();
        table.add(Unlinked::Table(3));
        assert_ne!(table, sum(&[3]));
    }
}
