//! Other CPUs, which change the same page tables while this one executes, and interrupt it for the flush; not before it has flushed do they free what they have unlinked.

use super::random::Random;
use super::tables::{Directory, KERNEL, PAGES, Page, REGIONS, Tables};

/// A store that this CPU has not heard of so far.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub space: usize,
    pub region: usize,
    /// The page, or all of the region, whose table was this one.
    pub what: Result<Page, Directory>,
}

#[derive(Debug)]
pub struct Others {
    /// Without, they do nothing.
    random: Option<Random>,
    /// In the order of the stores.
    changes: Vec<Change>,
    /// Tables that nobody may walk any more.
    unused: Vec<Directory>,
}

impl Others {
    /// They do nothing.
    pub const fn idle() -> Self {
        Self {
            random: None,
            changes: Vec::new(),
            unused: Vec::new(),
        }
    }

    /// They do something now and then.
    pub fn busy(seed: u64) -> Self {
        Self {
            random: Some(Random::new(seed)),
            ..Self::idle()
        }
    }

    /// Perhaps one thing.
    pub fn act(&mut self, memory: &mut Tables) {
        let Some(mut random) = self.random.take_if(|random| random.below(8) == 0) else {
            return;
        };
        let space = 1 + random.below(2);
        match random.below(3) {
            0 => {
                let region = random.below(REGIONS);
                let index = random.below(PAGES);
                let page = Page { region, index };
                let frame = Some(900 + random.below(8) as u32).filter(|frame| *frame < 906);
                self.change_page(memory, space, page, frame);
            }
            1 => {
                let is_emptied = random.below(4) == 0;
                self.unlink(memory, space, random.below(KERNEL), is_emptied);
            }
            _ => self.unused.drain(..).for_each(|table| memory.free(table)),
        }
        self.random = Some(random);
    }

    fn change_page(&mut self, memory: &mut Tables, space: usize, page: Page, frame: Option<u32>) {
        let region = page.region;
        if memory.has_table(space, region) {
            memory.set(space, page, frame);
            let what = Ok(page);
            self.changes.push(Change {
                space,
                region,
                what,
            });
        }
    }

    /// Another table takes the place of the region's, or none does.
    pub fn unlink(&mut self, memory: &mut Tables, space: usize, region: usize, is_emptied: bool) {
        if !memory.has_table(space, region) {
            return;
        }
        let what = Err(memory.directory(space, region).now());
        match is_emptied {
            true => memory.store(space, region, Directory::EMPTY),
            false => memory.link(space, region, 700),
        }
        self.changes.push(Change {
            space,
            region,
            what,
        });
    }

    /// The interrupt: what this CPU is to flush next.
    pub fn next_change(&mut self) -> Option<Change> {
        (!self.changes.is_empty()).then(|| self.changes.remove(0))
    }

    /// Whether there is something to flush in a region.
    pub fn are_changing(&self, region: usize) -> bool {
        self.changes.iter().any(|change| change.region == region)
    }

    /// This CPU has flushed it: what was unlinked may be freed at any time.
    pub fn flushed(&mut self, change: Change) {
        self.unused.extend(change.what.err());
    }
}
