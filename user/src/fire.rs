//! Threads that write while another one forks, two to each page: what a child may have of their writes.
//!
//! A child has every write that happened before the fork, and none that began after it. What begins after is told by the era: the
//! thread that forks counts it when it is back, and each write says in which era it was made.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use crate::machine;
use crate::region::Region;

/// Threads that write.
pub const WRITERS: usize = 3;
/// Pages; each has the words of two writers, on one cache line.
const PAGES: usize = 12;
/// Above these bits of a word is the era.
const ERA_SHIFT: u32 = 32;
/// How often a child looks at its memory.
const LOOKS: usize = 40;

/// What a child has found wrong, as its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// A write is missing that happened before the fork.
    Lost = 1,
    /// A write is there that began after the fork.
    Later = 2,
    /// A word has changed since the child began.
    Changed = 3,
    /// What the child wrote beside it is gone.
    Overwritten = 4,
}

impl Complaint {
    /// In words; that of an unknown status, too.
    pub fn of_status(status: i32) -> &'static str {
        match status {
            1 => "a child lacks a write that happened before the fork",
            2 => "a child has a write that began after the fork",
            3 => "a child's word changed after the fork",
            4 => "a child's own write is lost",
            _ => "a child failed",
        }
    }
}

/// What the threads write to, and what they have said of it.
#[derive(Debug)]
pub struct Fire {
    memory: Region,
    /// What a word holds at least, for whoever has read this: by page and writer.
    published: Vec<AtomicU64>,
    era: AtomicU64,
    over: AtomicBool,
}

/// What was published when a fork was about to begin.
#[derive(Debug)]
pub struct Before {
    least: Vec<u64>,
    era: u64,
}

/// The two writers of a page.
fn writers(page: usize) -> [usize; 2] {
    [page % WRITERS, (page + 1) % WRITERS]
}

impl Fire {
    /// Nothing is written yet.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            memory: Region::new(PAGES)?,
            published: (0..PAGES * WRITERS).map(|_| AtomicU64::new(0)).collect(),
            era: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    fn word(&self, page: usize, writer: usize) -> &AtomicU64 {
        self.memory.word(page, 8 + writer)
    }

    fn published(&self, page: usize, writer: usize) -> &AtomicU64 {
        &self.published[page * WRITERS + writer]
    }

    /// The pages and writers of all words.
    fn words(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..PAGES).flat_map(|page| writers(page).map(|writer| (page, writer)))
    }

    /// Writes to one page after the other until it is [over](Self::end). On that CPU.
    ///
    /// # Errors
    /// Says where its last write to a word is not there any more.
    pub fn write(&self, writer: usize, cpu: usize) -> Result<(), String> {
        machine::pin_to(cpu).map_err(|error| error.to_string())?;
        let mut last = [0; PAGES];
        for count in 1u64.. {
            if self.over.load(Relaxed) {
                break;
            }
            for (page, last) in last.iter_mut().enumerate() {
                if !writers(page).contains(&writer) {
                    continue;
                }
                let stamp = self.era.load(Acquire) << ERA_SHIFT | count;
                let found = self.word(page, writer).swap(stamp, Release);
                if found != *last {
                    return Err(format!(
                        "page {page} holds {found:#x}, but its writer wrote {last:#x}"
                    ));
                }
                self.published(page, writer).store(stamp, Release);
                *last = stamp;
            }
        }
        Ok(())
    }

    /// What the next child must have.
    pub fn before(&self) -> Before {
        let all = self.published.iter();
        Before {
            least: all.map(|word| word.load(Acquire)).collect(),
            era: self.era.load(Relaxed),
        }
    }

    /// The fork is over: what is written from now on is not the child's. Returns when every writer has written again.
    pub fn after(&self) {
        let era = self.era.fetch_add(1, Release) + 1;
        for (page, writer) in self.words() {
            while self.published(page, writer).load(Relaxed) >> ERA_SHIFT < era {
                thread::yield_now();
            }
        }
    }

    /// What a child does: no allocation, no lock. Its exit status.
    pub fn inherit(&self, before: &Before) -> i32 {
        match self.check(before) {
            Ok(()) => 0,
            Err(complaint) => complaint as i32,
        }
    }

    fn check(&self, before: &Before) -> Result<(), Complaint> {
        let mut first = [[0; WRITERS]; PAGES];
        for (page, writer) in self.words() {
            let found = self.word(page, writer).load(Relaxed);
            first[page][writer] = found;
            if found < before.least[page * WRITERS + writer] {
                return Err(Complaint::Lost);
            }
        }
        for look in 0..LOOKS {
            for (page, writer) in self.words() {
                let found = self.word(page, writer).load(Relaxed);
                if found >> ERA_SHIFT > before.era {
                    return Err(Complaint::Later);
                }
                if found != first[page][writer] {
                    return Err(Complaint::Changed);
                }
            }
            if look % 4 == 3 {
                thread::yield_now();
            }
        }
        self.write_beside(&first)
    }

    /// Writes to one of the two words of each page: the other stays, and so does this.
    fn write_beside(&self, first: &[[u64; WRITERS]; PAGES]) -> Result<(), Complaint> {
        const OWN: u64 = u64::MAX;
        (0..PAGES).for_each(|page| self.word(page, writers(page)[0]).store(OWN, Relaxed));
        for _ in 0..LOOKS {
            for (page, first) in first.iter().enumerate() {
                let [own, other] = writers(page);
                if self.word(page, own).load(Relaxed) != OWN {
                    return Err(Complaint::Overwritten);
                }
                if self.word(page, other).load(Relaxed) != first[other] {
                    return Err(Complaint::Changed);
                }
            }
        }
        Ok(())
    }

    /// Ends all writers.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(era: u64, value: u64) -> Fire {
        let fire = Fire::new().unwrap();
        for (page, writer) in fire.words() {
            fire.word(page, writer)
                .store(era << ERA_SHIFT | value, Relaxed);
            fire.published(page, writer).store(value, Relaxed);
        }
        fire
    }

    #[test]
    fn children_complain_of_what_is_missing_and_of_what_is_too_new() {
        let fire = written(0, 5);
        let before = fire.before();
        fire.word(3, 1).store(4, Relaxed);
        assert_eq!(fire.check(&before), Err(Complaint::Lost));
        let fire = written(1, 5);
        let before = Before {
            era: 0,
            ..fire.before()
        };
        assert_eq!(fire.check(&before), Err(Complaint::Later));
        let fire = written(0, 5);
        assert_eq!(fire.check(&fire.before()), Ok(()));
    }

    #[test]
    fn each_page_has_two_writers() {
        for page in 0..PAGES {
            let [one, other] = writers(page);
            assert!(one != other && one.max(other) < WRITERS);
        }
    }
}
