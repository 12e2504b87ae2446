//! Pages of one worker, which take frames into use as soon as they are free.
//!
//! A frame that is freed before every CPU has forgotten it shows best if it is in use again at
//! once, with other content. So a worker touches its private pages one after the other while it
//! watches a slot, and gives them back when all are in use.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mark::{CONTENT_WORD, Mark, SCRIBBLE_WORD, Sort, TAIL_WORD};
use super::slot;
use crate::machine;
use crate::region::{PAGE_BYTES, PAGE_WORDS};

/// Pages of one worker; together with the largest slot more than a kernel's per-CPU cache of
/// frames holds.
const PAGES: usize = 96;

/// A worker's private pages, always mapped and writable, touched one by one.
#[derive(Debug)]
pub struct PrivatePages {
    worker: usize,
    round: u32,
    touched: usize,
}

/// A word that is not what its only writer wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The page.
    pub page: usize,
    /// The word in it.
    pub word: usize,
    /// What it must be.
    pub expected: u64,
    /// What it is.
    pub seen: u64,
}

impl PrivatePages {
    /// Maps the pages of `worker`, which must be the only one to do so.
    pub fn new(worker: usize) -> io::Result<Self> {
        slot::map_at(slot::private_base(worker), PAGES)?;
        Ok(Self {
            worker,
            round: 0,
            touched: 0,
        })
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        PAGES
    }

    /// Touches the next page and marks it; returns its number, or `None` when all are in use.
    pub fn touch(&mut self) -> Option<usize> {
        let page = self.touched;
        if page == PAGES {
            return None;
        }
        self.touched += 1;
        let mark = self.mark(page).to_word();
        self.word(page, CONTENT_WORD).store(mark, Ordering::Relaxed);
        self.word(page, TAIL_WORD).store(mark, Ordering::Relaxed);
        Some(page)
    }

    /// Checks the words of touched page `page`; those not written must be zero still.
    pub fn inspect(&self, page: usize) -> Result<(), Damage> {
        let mark = self.mark(page).to_word();
        let words = [
            (CONTENT_WORD, mark),
            (SCRIBBLE_WORD, 0),
            (TAIL_WORD - 1, 0),
            (TAIL_WORD, mark),
        ];
        let mut words = words.into_iter();
        words.try_for_each(|(word, expected)| self.compare(page, word, expected))
    }

    fn compare(&self, page: usize, word: usize, expected: u64) -> Result<(), Damage> {
        let seen = self.word(page, word).load(Ordering::Relaxed);
        if seen == expected {
            return Ok(());
        }
        Err(Damage {
            page,
            word,
            expected,
            seen,
        })
    }

    /// Checks every touched page.
    pub fn inspect_all(&self) -> Result<(), Damage> {
        (0..self.touched).try_for_each(|page| self.inspect(page))
    }

    /// Writes other words to every touched page; for a forked child, whose pages they are not.
    pub fn spoil(&self, value: impl Fn(usize) -> u64) {
        for page in 0..self.touched {
            self.word(page, CONTENT_WORD)
                .store(value(page), Ordering::Relaxed);
        }
    }

    /// Checks what [`spoil`](Self::spoil) wrote.
    pub fn inspect_spoiled(&self, value: impl Fn(usize) -> u64) -> Result<(), Damage> {
        (0..self.touched).try_for_each(|page| self.compare(page, CONTENT_WORD, value(page)))
    }

    /// Checks every touched page, then gives all back: by a discard or by a new mapping.
    ///
    /// The error of the first level is a failed system call.
    pub fn recycle(&mut self, by_mapping: bool) -> io::Result<Result<(), Damage>> {
        let inspection = self.inspect_all();
        let base = slot::private_base(self.worker);
        if by_mapping {
            slot::map_at(base, PAGES)?;
        } else {
            let start = std::ptr::with_exposed_provenance_mut(base);
            // SAFETY: the range is this worker's own mapping, seen through atomics only.
            machine::done(unsafe {
                libc::madvise(start, PAGES * PAGE_BYTES, libc::MADV_DONTNEED)
            })?;
        }
        self.round = self.round.wrapping_add(1);
        self.touched = 0;
        Ok(inspection)
    }

    fn mark(&self, page: usize) -> Mark {
        Mark::new(Sort::Private, self.worker, page, self.round)
    }

    fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        let is_there = page < PAGES && word < PAGE_WORDS;
        assert!(is_there, "no word {word} of page {page}");
        let address = slot::private_base(self.worker) + page * PAGE_BYTES + word * size_of::<u64>();
        let pointer: *mut AtomicU64 = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: mapped, writable and aligned from `new` until the process ends (mapping anew
        // replaces it in one step), and only ever accessed through atomics.
        unsafe { &*pointer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_touched_inspected_and_recycled() {
        let mut pages = PrivatePages::new(500).unwrap();
        for by_mapping in [false, true] {
            for expected in 0..PAGES {
                assert_eq!(pages.touch(), Some(expected));
                pages.inspect(expected).unwrap();
            }
            assert_eq!(pages.touch(), None);
            pages.recycle(by_mapping).unwrap().unwrap();
        }
        let page = pages.touch().unwrap();
        pages.word(page, SCRIBBLE_WORD).store(7, Ordering::Relaxed);
        let damage = pages.recycle(false).unwrap().unwrap_err();
        let found = (damage.page, damage.word, damage.seen);
        assert_eq!(found, (page, SCRIBBLE_WORD, 7));
    }
}
