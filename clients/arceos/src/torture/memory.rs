//! Pages of the kernel whose entries the torture changes itself, and frames for them.
//!
//! ArceOS makes the tables: it maps the pages once. Its own functions flush this CPU as they change an entry, so they are not used after that.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axhal::mem::phys_to_virt;
use axhal::paging::MappingFlags;
use memory_addr::{PAGE_SIZE_4K, PhysAddr};
use page_table_entry::GenericPTE;
use shootdown::{AddressSpace, Cpus, FlushScope};
use shootdown_torture::{FRAMES, Memory, PAGES, Region};

use crate::arch::{Entry, LEVELS};
use crate::fault;
use crate::memory::{self, Pages};
use crate::platform::CPUS;

/// Bits of an address that a table looks at.
const INDEX_BITS: usize = 9;
const OFFSET_BITS: usize = 12;
const ENTRY_BYTES: usize = 8;

/// The pages, once they are there.
#[derive(Debug)]
pub(super) struct KernelPages {
    /// Address of the first page; 0 before there is one.
    start: AtomicUsize,
    /// The entry of each page.
    entries: [AtomicUsize; PAGES],
    /// Physical address of the first frame; the others follow.
    frames: AtomicUsize,
}

impl KernelPages {
    pub const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            entries: [const { AtomicUsize::new(0) }; PAGES],
            frames: AtomicUsize::new(0),
        }
    }

    /// Makes pages and frames. Once, before the first step.
    pub fn stock(&self) {
        let frames = memory::frames(FRAMES);
        let first = memory::address_of(&frames);
        // They stay.
        core::mem::forget(frames);
        let pages = Pages::new(PAGES, first);
        for (page, entry) in self.entries.iter().enumerate() {
            let address = pages.start.as_usize() + page * PAGE_SIZE_4K;
            entry.store(entry_of(address), Ordering::Relaxed);
            self.entry(page).store(0, Ordering::Relaxed);
        }
        self.frames.store(first.as_usize(), Ordering::Relaxed);
        self.start.store(pages.start.as_usize(), Ordering::Relaxed);
        crate::platform::SHOOTDOWN.flush(
            FlushScope::Kernel,
            pages.range(),
            shootdown::FreedTables::No,
        );
    }

    fn entry(&self, page: usize) -> &'static AtomicU64 {
        let address = self.entries[page].load(Ordering::Relaxed);
        // SAFETY: an entry of a table that ArceOS keeps for ever, and does not change: the pages stay mapped for it.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }
    }

    fn frame(&self, frame: usize) -> PhysAddr {
        PhysAddr::from(self.frames.load(Ordering::Relaxed) + frame * PAGE_SIZE_4K)
    }
}

/// Where the entry of a mapped page is.
fn entry_of(address: usize) -> usize {
    let mut table = axmm::kernel_page_table_root();
    for level in (0..LEVELS).rev() {
        let index = address >> (OFFSET_BITS + INDEX_BITS * level) & ((1 << INDEX_BITS) - 1);
        let entry = phys_to_virt(table).as_usize() + index * ENTRY_BYTES;
        if level == 0 {
            return entry;
        }
        // SAFETY: an entry of a table of the kernel, which maps the page by small pages.
        let next: Entry = unsafe { core::ptr::read_volatile(entry as *const Entry) };
        table = next.paddr();
    }
    unreachable!("there is a level 0")
}

impl Memory<CPUS> for KernelPages {
    fn spaces(&self) -> usize {
        0
    }

    fn space(&self, _: usize) -> &AddressSpace<Cpus<CPUS>> {
        unreachable!("there are no spaces")
    }

    fn pages(&self, region: Region) -> usize {
        match region {
            Region::Kernel => PAGES,
            _ => 0,
        }
    }

    fn address(&self, _: Region, page: usize) -> usize {
        self.start.load(Ordering::Relaxed) + page * PAGE_SIZE_4K
    }

    fn frames(&self) -> usize {
        FRAMES
    }

    fn write_frame(&self, frame: usize, word: u64) {
        let address = phys_to_virt(self.frame(frame)).as_usize();
        // SAFETY: a word of a frame that the torture has for ever; all accesses are atomic, or loads through the pages.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(word, Ordering::Relaxed);
    }

    fn map(&self, _: Region, page: usize, frame: Option<usize>) {
        let flags = MappingFlags::READ | MappingFlags::WRITE;
        let entry = frame.map(|frame| Entry::new_page(self.frame(frame), flags, false).bits());
        // ORDERING: Release: the frame's contents are there before an entry leads to it; walks depend on the entry.
        self.entry(page)
            .store(entry.unwrap_or(0) as u64, Ordering::Release);
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        fault::load(self.address(region, page))
    }

    fn entered(&self) -> Option<usize> {
        None
    }

    fn enter(&self, _: Option<usize>) {}
}
