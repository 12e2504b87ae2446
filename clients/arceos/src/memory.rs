//! Changes of kernel pages, by ArceOS alone and with the engine.

use axalloc::GlobalPage;
use axhal::mem::virt_to_phys;
use axhal::paging::MappingFlags;
use axmm::{AddrSpace, kernel_aspace};
use memory_addr::{PAGE_SIZE_4K, PhysAddr, VirtAddr, VirtAddrRange};
use shootdown::{FlushRange, FlushScope, FreedTables, PageSize};

use crate::platform::SHOOTDOWN;

/// Rights of a page that is read and written.
const READ_WRITE: MappingFlags = MappingFlags::READ.union(MappingFlags::WRITE);

/// Who flushes after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flusher {
    /// ArceOS: this CPU only.
    Stock,
    /// The engine: all CPUs.
    Engine,
}

/// Pages of the kernel, at addresses of their own. Dropping it leaves them.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    pub start: VirtAddr,
    pub bytes: usize,
}

/// Frames that follow each other.
pub fn frames(count: usize) -> GlobalPage {
    let frames = GlobalPage::alloc_contiguous(count, PAGE_SIZE_4K);
    frames.expect("memory for a few frames")
}

/// Where they are.
pub fn address_of(frames: &GlobalPage) -> PhysAddr {
    frames.start_paddr(virt_to_phys)
}

impl Pages {
    /// Finds addresses for `count` pages, and maps them to `frames`.
    pub fn new(count: usize, frames: PhysAddr) -> Self {
        let mut space = kernel_aspace().lock();
        let (base, bytes) = (space.base(), count * PAGE_SIZE_4K);
        let limit = VirtAddrRange::from_start_size(base, space.size());
        // Behind what is mapped to the same offset as the memory.
        let hint = base + space.size() / 2;
        let start = space.find_free_area(hint, bytes, limit);
        let start = start.expect("the kernel's space is not full");
        let mapped = space.map_linear(start, frames, bytes, READ_WRITE);
        mapped.expect("memory for page tables");
        Self { start, bytes }
    }

    /// Maps what `unmap` took away. That needs no flush on x86; elsewhere an access may fault, and is then tried again.
    pub fn map(&self, frames: PhysAddr) {
        let mut space = kernel_aspace().lock();
        let mapped = space.map_linear(self.start, frames, self.bytes, READ_WRITE);
        mapped.expect("nobody else maps there");
    }

    /// Takes the mapping away. Its frames may be used for something else when this returns; so may its addresses, which ArceOS has for free once the
    /// lock is: so the lock, which polls, is held until the flush is over.
    pub fn unmap(&self, flusher: Flusher) {
        let mut space = kernel_aspace().lock();
        let done = space.unmap(self.start, self.bytes);
        done.expect("it is mapped");
        if flusher == Flusher::Engine {
            SHOOTDOWN.flush(FlushScope::Kernel, self.range(), FreedTables::No);
        }
    }

    /// Maps to other frames. As `unmap`.
    pub fn remap(&self, frames: PhysAddr, flusher: Flusher) {
        self.change(flusher, |space| {
            let done = space.unmap(self.start, self.bytes);
            done.expect("it is mapped");
            let done = space.map_linear(self.start, frames, self.bytes, READ_WRITE);
            done.expect("nobody else maps there");
        });
    }

    /// Takes the right to write away, or gives it back. Nobody writes when this returns.
    pub fn protect(&self, is_writable: bool, flusher: Flusher) {
        let flags = match is_writable {
            true => READ_WRITE,
            false => MappingFlags::READ,
        };
        self.change(flusher, |space| {
            let done = space.protect(self.start, self.bytes, flags);
            done.expect("it is mapped");
        });
    }

    /// Changes the tables under their lock, submits the flush, unlocks, and waits: the addresses stay in use. ArceOS keeps tables that become empty.
    fn change(&self, flusher: Flusher, work: impl FnOnce(&mut AddrSpace)) {
        let mut space = kernel_aspace().lock();
        work(&mut space);
        if flusher == Flusher::Stock {
            return;
        }
        let ticket = SHOOTDOWN.submit_flush(FlushScope::Kernel, self.range(), FreedTables::No);
        drop(space);
        ticket.wait();
    }

    /// What a flush has to name.
    pub fn range(&self) -> FlushRange {
        let start = self.start.as_usize();
        FlushRange::new(start, start + self.bytes, PageSize::SIZE_4K)
    }
}
