//! Spaces of OSTD's whose last-level entries the torture changes, and frames for them.

use alloc::vec::Vec;

use ostd::mm::{Frame, PAGE_SIZE};
use shootdown::{AddressSpace, Cpus, FreedTables};
use shootdown_torture::{FRAMES, Memory, PAGES, Region, SPACES};

use crate::machine;
use crate::platform::{MAX_CPUS, SHOOTDOWN};
use crate::spaces::{self, BASE, Entry, Space};

/// All that is mapped.
#[derive(Debug)]
pub(super) struct UserPages {
    spaces: Vec<(&'static Space, Vec<Entry>)>,
    frames: Vec<Frame<()>>,
}

impl UserPages {
    /// Has OSTD map all pages, so that there are tables, and empties their entries.
    pub fn new() -> Self {
        let frames: Vec<_> = (0..FRAMES).map(|_| spaces::frame()).collect();
        let spaces = (0..SPACES).map(|_| {
            let space = Space::new();
            space.map(BASE, &frames[..PAGES]);
            let entries = spaces::entries(space, BASE, PAGES);
            entries.iter().for_each(|entry| entry.set(None));
            SHOOTDOWN.flush(
                space.engine(),
                spaces::flush_range(BASE, PAGES),
                FreedTables::No,
            );
            (space, entries)
        });
        Self {
            spaces: spaces.collect(),
            frames,
        }
    }
}

fn number(region: Region) -> Option<usize> {
    match region {
        Region::Space(index) => Some(index),
        _ => None,
    }
}

impl Memory<MAX_CPUS> for UserPages {
    fn spaces(&self) -> usize {
        self.spaces.len()
    }

    fn space(&self, index: usize) -> &AddressSpace<Cpus<MAX_CPUS>> {
        self.spaces[index].0.engine()
    }

    fn pages(&self, region: Region) -> usize {
        number(region).map_or(0, |_| PAGES)
    }

    fn address(&self, _: Region, page: usize) -> usize {
        BASE + page * PAGE_SIZE
    }

    fn frames(&self) -> usize {
        self.frames.len()
    }

    fn write_frame(&self, frame: usize, word: u64) {
        spaces::write(&self.frames[frame], word);
    }

    fn map(&self, region: Region, page: usize, frame: Option<usize>) {
        let index = number(region).expect("only spaces have pages");
        self.spaces[index].1[page].set(frame.map(|frame| &self.frames[frame]));
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        machine::load(self.address(region, page))
    }

    fn entered(&self) -> Option<usize> {
        let entered = spaces::entered()?;
        self.spaces
            .iter()
            .position(|(space, _)| core::ptr::eq(*space, entered))
    }

    fn enter(&self, space: Option<usize>) {
        spaces::enter(space.map(|index| self.spaces[index].0));
    }
}
