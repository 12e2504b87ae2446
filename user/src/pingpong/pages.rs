//! The pages of one process. Every word that is ever read tells whose it is, of which page, and how old.
//!
//! A translation that should be gone leads to a frame of another process, to an old frame of this one, or to one that
//! somebody else has been given since: in each case the word read is not the one that was written last.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use crate::region::{PAGE_WORDS, Region};

/// Words in a cache line. Pages use different lines, or all would meet in a few sets of the caches.
const LINE_WORDS: usize = 8;

/// How a process changes its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Writes to the frames that are there (to copies where they are shared).
    InPlace,
    /// Gives the frames back first, and takes others.
    Afresh,
}

/// What a page held and should have held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// The page.
    pub page: usize,
    /// The value read.
    pub seen: u64,
    /// The value written last.
    pub expected: u64,
}

/// One process's view of the region; a forked process has a copy of it.
#[derive(Debug)]
pub struct Pages {
    region: Region,
    /// How many pages a measured turn touches, and the sum of what it reads then.
    touched: usize,
    sum: u64,
    owner: usize,
    version: u64,
}

impl Pages {
    /// Maps `pages` pages, of which measured turns touch the first `touched`, and fills them for process 0.
    pub fn new(pages: usize, touched: usize) -> io::Result<Self> {
        assert!(touched <= pages, "no more are touched than there are");
        let mut own = Self {
            region: Region::new(pages)?,
            touched,
            sum: 0,
            owner: 0,
            version: 0,
        };
        own.renew(Renewal::InPlace)?;
        Ok(own)
    }

    /// Makes the pages those of `owner`, with values that nobody else has.
    pub fn claim(&mut self, owner: usize) -> io::Result<()> {
        self.owner = owner;
        self.renew(Renewal::InPlace)
    }

    /// Writes new values to all pages, from the last page down: frames taken afresh come in another order.
    pub fn renew(&mut self, renewal: Renewal) -> io::Result<()> {
        if renewal == Renewal::Afresh {
            self.region.discard(self.region.pages())?;
        }
        self.version += 1;
        for page in (0..self.region.pages()).rev() {
            self.word(page).store(self.value(page), Relaxed);
        }
        self.sum = (0..self.touched)
            .map(|page| self.value(page))
            .fold(0, u64::wrapping_add);
        Ok(())
    }

    /// The measured part of a turn: reads one word of each page to touch, and returns 1 if one of them was wrong.
    ///
    /// One comparison of sums checks them all; each process begins at a page of its own.
    #[inline(never)]
    pub fn touch(&self) -> u64 {
        let first = match self.touched {
            0 => 0,
            touched => self.owner * PAGES_APART % touched,
        };
        let mut sum = 0u64;
        for page in (first..self.touched).chain(0..first) {
            sum = sum.wrapping_add(self.word(page).load(Relaxed));
        }
        u64::from(sum != self.sum)
    }

    /// Reads every page; returns how many were wrong, and the first of them.
    pub fn look(&self) -> (u64, Option<Finding>) {
        let (mut wrong, mut first) = (0, None);
        for page in 0..self.region.pages() {
            let (seen, expected) = (self.word(page).load(Relaxed), self.value(page));
            if seen != expected {
                wrong += 1;
                first.get_or_insert(Finding {
                    page,
                    seen,
                    expected,
                });
            }
        }
        (wrong, first)
    }

    /// Whose pages these are.
    pub fn owner(&self) -> usize {
        self.owner
    }

    #[inline(always)]
    fn word(&self, page: usize) -> &std::sync::atomic::AtomicU64 {
        self.region.word(page, page * LINE_WORDS % PAGE_WORDS)
    }

    /// Never zero, and different for every owner, page and version.
    fn value(&self, page: usize) -> u64 {
        (self.owner as u64 + 1) << 56 | (page as u64) << 40 | self.version
    }
}

/// By how many pages the first pages of neighbours differ; odd, so that all differ.
const PAGES_APART: usize = 37;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_pages_and_renewed_ones_are_right() {
        let mut pages = Pages::new(80, 64).unwrap();
        for renewal in [Renewal::InPlace, Renewal::Afresh] {
            assert_eq!((pages.touch(), pages.look()), (0, (0, None)));
            pages.renew(renewal).unwrap();
        }
        pages.claim(3).unwrap();
        assert_eq!((pages.touch(), pages.look()), (0, (0, None)));
    }

    #[test]
    fn an_old_value_and_a_foreign_one_are_noticed() {
        let mut pages = Pages::new(16, 8).unwrap();
        let old = pages.word(5).load(Relaxed);
        pages.claim(1).unwrap();
        for foreign in [old, old + (1 << 56), 0] {
            let right = pages.word(5).swap(foreign, Relaxed);
            let (wrong, first) = pages.look();
            assert_eq!((pages.touch(), wrong), (1, 1));
            let first = first.unwrap();
            let found = (first.page, first.seen, first.expected);
            assert_eq!(found, (5, foreign, right));
            pages.word(5).store(right, Relaxed);
        }
    }

    #[test]
    fn a_turn_touches_only_what_it_should() {
        let pages = Pages::new(16, 8).unwrap();
        pages.word(8).store(0, Relaxed);
        assert_eq!((pages.touch(), pages.look().0), (0, 1));
        assert_eq!(Pages::new(8, 0).unwrap().touch(), 0);
    }

    #[test]
    fn a_discarded_frame_shows() {
        let pages = Pages::new(8, 8).unwrap();
        pages.region.discard(3).unwrap();
        assert_eq!((pages.touch(), pages.look().0), (1, 3));
    }
}
