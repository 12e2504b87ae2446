//! The file that is written to, what one operation does with it, and whether all of it was stored.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock::{self, narrow};
use crate::course::Sample;
use crate::course::crew::Work;
use crate::memory_file;
use crate::region::{PAGE_BYTES, PAGE_WORDS, Region};

/// Bytes read at a time when both copies are compared.
const PIECE_PAGES: usize = 64;

/// A file and its mapping.
#[derive(Debug)]
pub struct Target {
    file: File,
    /// What syncs have stored; the file itself where the kernel does not show that.
    stored: File,
    region: Region,
    /// Whether `stored` is another copy than the mapping's.
    pub is_checkable: bool,
}

impl Target {
    /// A file of so many pages, each of which was written and stored once.
    pub fn new(pages: usize, directory: Option<&Path>) -> io::Result<Self> {
        let bytes = (pages * PAGE_BYTES) as u64;
        let file = match directory {
            None => memory_file::create(c"dirtysync", bytes)?,
            Some(directory) => {
                let path = directory.join("dirtysync");
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(true);
                let file = options.open(&path)?;
                file.set_len(bytes)?;
                std::fs::remove_file(path)?;
                file
            }
        };
        let stored = memory_file::stored(&file)?;
        let region = Region::of_file(&file, pages)?;
        let target = Self {
            is_checkable: stored.is_some(),
            stored: stored.map_or_else(|| file.try_clone(), Ok)?,
            file,
            region,
        };
        target.write(0, pages, 1);
        target.file.sync_data()?;
        Ok(target)
    }

    /// Pages of the file.
    pub fn pages(&self) -> usize {
        self.region.pages()
    }

    /// Fills pages with a value.
    fn write(&self, first: usize, pages: usize, value: u64) {
        for page in first..first + pages {
            for word in 0..PAGE_WORDS {
                self.region.word(page, word).store(value, Relaxed);
            }
        }
    }

    /// One operation: a write of `pages` pages somewhere, and the sync; the times of both together and of the sync alone.
    pub fn operate(&self, pages: usize, random: &mut fastrand::Rng) -> io::Result<Sample> {
        let place = random.usize(..self.pages() / pages) * pages;
        let value = random.u64(..);
        let begun = clock::ticks();
        self.write(place, pages, value);
        let written = clock::ticks();
        self.file.sync_data()?;
        let synced = clock::ticks();
        Ok(Sample {
            whole: narrow(synced.wrapping_sub(begun)),
            call: narrow(synced.wrapping_sub(written)),
        })
    }

    /// How many words of the stored copy are not what the mapping has. Nobody writes meanwhile.
    pub fn lost_words(&self) -> io::Result<u64> {
        self.file.sync_data()?;
        let mut bytes = vec![0; PIECE_PAGES * PAGE_BYTES];
        let mut lost = 0;
        for first in (0..self.pages()).step_by(PIECE_PAGES) {
            let pages = PIECE_PAGES.min(self.pages() - first);
            let bytes = &mut bytes[..pages * PAGE_BYTES];
            self.stored
                .read_exact_at(bytes, (first * PAGE_BYTES) as u64)?;
            for (index, stored) in bytes.as_chunks().0.iter().enumerate() {
                let (page, word) = (first + index / PAGE_WORDS, index % PAGE_WORDS);
                let written = self.region.word(page, word).load(Relaxed);
                lost += u64::from(u64::from_ne_bytes(*stored) != written);
            }
        }
        Ok(lost)
    }
}

/// Operations on so many pages at a time.
#[derive(Debug)]
pub struct Writes<'a> {
    /// What is written to.
    pub target: &'a Target,
    /// Pages in each write.
    pub pages: usize,
    /// The CPUs of the threads beside the measuring one.
    pub others: &'a [usize],
}

impl Work for Writes<'_> {
    type Seat = fastrand::Rng;

    fn seat(&self, _: usize, seed: u64) -> io::Result<fastrand::Rng> {
        Ok(fastrand::Rng::with_seed(seed))
    }

    fn operate(&self, random: &mut fastrand::Rng) -> io::Result<Sample> {
        self.target.operate(self.pages, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_writes_its_pages_and_takes_its_times() {
        let target = Target::new(8, None).unwrap();
        let mut random = fastrand::Rng::with_seed(3);
        let sample = target.operate(4, &mut random).unwrap();
        assert!(0 < sample.call && sample.call < sample.whole);
        let value = |page| target.region.word(page, 511).load(Relaxed);
        let changed = (0..8).filter(|&page| value(page) != 1).count();
        assert_eq!(changed, 4);
        assert_eq!(target.lost_words().unwrap(), 0);
    }

    #[test]
    fn a_difference_between_the_copies_is_counted() {
        let mut target = Target::new(2, None).unwrap();
        target.stored = memory_file::create(c"other", 2 * PAGE_BYTES as u64).unwrap();
        assert_eq!(target.lost_words().unwrap(), 2 * PAGE_WORDS as u64);
    }
}
