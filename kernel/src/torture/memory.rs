//! Spaces, frames and loads for the torture: real page tables, and real translations.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::AddressSpace;
use shootdown_torture::{FRAMES, Memory, PAGES, Region, SPACES};

use super::run;
use super::tables::{Leaves, PAGES_PER_TABLE, Scope, Tables};
use crate::addr::PhysAddr;
use crate::arch::{paging, uaccess};
use crate::mm::{MemorySpace, SpaceUse, frames};
use crate::platform::MAX_CPUS;
use crate::task;

/// Where the pages of each space are.
const SPACE_BASE: usize = 0x10_0000_0000;
/// Where those are that all spaces share: behind the local APIC's page.
const KERNEL_BASE: usize = paging::APIC_PAGE + (2 << 20);
const TABLES_PER_SPACE: usize = PAGES / PAGES_PER_TABLE;
const KERNEL_TABLES: usize = 2;
/// In the frame that freed tables lead to; no frame in use ever has it.
const FREED_TABLE: u64 = 0x0bad << 48;

/// All that is mapped. Lives until the machine ends.
#[derive(Debug)]
pub(super) struct TortureMemory {
    /// A use of each space that never ends: nobody else's end may unmap it.
    spaces: Vec<(SpaceUse, Leaves)>,
    kernel: Leaves,
    frames: Vec<PhysAddr>,
    tables: &'static Tables,
}

impl TortureMemory {
    /// Once, before the first step.
    ///
    /// # Panics
    /// Without memory.
    pub fn new() -> Self {
        static TABLES: Tables = Tables::new();
        let poison = new_frame();
        write(poison, FREED_TABLE);
        TABLES.stock(poison);
        let root = PhysAddr::new(paging::kernel_root().0);
        Self {
            spaces: (0..SPACES).map(|_| new_space(&TABLES)).collect(),
            kernel: Leaves::new(root, KERNEL_BASE, KERNEL_TABLES, Scope::Global, &TABLES),
            frames: (0..FRAMES).map(|_| new_frame()).collect(),
            tables: &TABLES,
        }
    }

    fn leaves(&self, region: Region) -> &Leaves {
        match region {
            Region::Space(index) => &self.spaces[index].1,
            Region::Kernel => &self.kernel,
            Region::Window(_) => unreachable!("no CPU has windows here"),
        }
    }
}

fn new_frame() -> PhysAddr {
    let frame = frames::alloc_zeroed().expect("memory for the torture's frames");
    frame.into_raw()
}

fn new_space(tables: &'static Tables) -> (SpaceUse, Leaves) {
    let space = MemorySpace::new().expect("memory for the torture's spaces");
    let root = space.root();
    let leaves = Leaves::new(root, SPACE_BASE, TABLES_PER_SPACE, Scope::Space, tables);
    (SpaceUse::new(space), leaves)
}

/// The word of a frame, by the direct map.
fn word(frame: PhysAddr) -> &'static AtomicU64 {
    let word = frame.to_direct().cast::<u64>();
    // SAFETY: the frame is the torture's for ever, in the direct map and page-aligned; it is accessed as an atomic word only,
    // and by loads of processors through its page tables.
    unsafe { AtomicU64::from_ptr(word) }
}

fn write(frame: PhysAddr, value: u64) {
    word(frame).store(value, Ordering::Relaxed);
}

impl Memory<MAX_CPUS> for TortureMemory {
    fn spaces(&self) -> usize {
        self.spaces.len()
    }

    fn space(&self, index: usize) -> &AddressSpace<MAX_CPUS> {
        self.spaces[index].0.engine()
    }

    fn pages(&self, region: Region) -> usize {
        self.leaves(region).pages()
    }

    fn address(&self, region: Region, page: usize) -> usize {
        self.leaves(region).address(page)
    }

    fn frames(&self) -> usize {
        self.frames.len()
    }

    fn write_frame(&self, frame: usize, word: u64) {
        write(self.frames[frame], word);
    }

    fn map(&self, region: Region, page: usize, frame: Option<usize>) {
        let frame = frame.map(|frame| self.frames[frame]);
        self.leaves(region).map(self.tables, page, frame);
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        let found = uaccess::probe(self.address(region, page));
        found.ok().map(|word| word as u64)
    }

    fn entered(&self) -> Option<usize> {
        run::entered()
    }

    fn enter(&self, space: Option<usize>) {
        let wanted = space.map(|index| Arc::clone(self.spaces[index].0.space()));
        run::note_entered(None);
        task::change_space(wanted.map(SpaceUse::new));
        run::note_entered(space);
    }

    fn move_table(&self, space: usize, page: usize) -> Option<usize> {
        self.spaces[space].1.move_table(self.tables, page)
    }

    fn table_pages(&self, page: usize) -> (usize, usize) {
        (page / PAGES_PER_TABLE * PAGES_PER_TABLE, PAGES_PER_TABLE)
    }

    fn free_table(&self, table: usize) {
        self.tables.give(table);
    }
}
