//! Memory that forked processes share: `mmap` with `MAP_SHARED` of nothing.
//!
//! The pages belong to a `SharedMemory`, which every area that shows a part of it refers to, and each is made at the
//! first access through any of them. Page-table entries own shares of the same frames, so a page lives as long as the
//! memory has an area or some processor may still translate to it.

use super::frames::{self, Frame, Share};
use super::layout::{USER_END, page_floor};
use super::page_table::PageTable;
use super::prot::Prot;
use super::pte::Pte;
use crate::sync::Mutex;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Most such memories at one time: each takes kernel heap that programs could ask for without end.
const MOST_MEMORIES: usize = 8192;

static MEMORIES: AtomicUsize = AtomicUsize::new(0);

/// Pages by offset. The table is never loaded: it only has the right shape, and needs no kernel heap to grow.
///
/// Its lock comes after that of an address space and before the frame allocator.
#[derive(Debug)]
struct SharedMemory {
    pages: Mutex<PageTable>,
}

/// The part of some shared memory that an area shows.
///
/// It is kept as the address where offset 0 would be, so that parts of an area need nothing changed.
#[derive(Clone, Debug)]
pub struct SharedArea {
    memory: Arc<SharedMemory>,
    origin: usize,
}

/// A place in shared memory, the same in every process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedPlace {
    /// Identifies the memory while it lives.
    pub memory: usize,
    /// The offset in it.
    pub offset: usize,
}

impl SharedArea {
    /// New shared memory, for an area that is yet to get its address: `moved` from 0. `None` without
    /// memory, or when there are too many.
    pub fn new() -> Option<Self> {
        let more = |count| (count < MOST_MEMORIES).then_some(count + 1);
        MEMORIES
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        let Some(pages) = PageTable::new() else {
            MEMORIES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let memory = SharedMemory {
            pages: Mutex::new(pages),
        };
        Some(Self {
            memory: Arc::new(memory),
            origin: 0,
        })
    }

    /// The same part for an area at `new` instead of `old`.
    pub(super) fn moved(self, old: usize, new: usize) -> Self {
        Self {
            origin: self.origin.wrapping_add(new).wrapping_sub(old),
            ..self
        }
    }

    /// Where `addr`, which the area holds, is in the memory.
    pub(super) fn place(&self, addr: usize) -> SharedPlace {
        SharedPlace {
            memory: Arc::as_ptr(&self.memory).addr(),
            offset: addr.wrapping_sub(self.origin),
        }
    }

    /// A share of the first page of it, which all areas that show it have in common. `None` without memory.
    pub fn first_page(&self) -> Option<Share> {
        self.page(self.origin, &mut None)
    }

    /// A share of the page at `addr`, which the area holds. A page that does not exist yet is made of `spare`, or of a
    /// new frame. `None` without memory.
    pub(super) fn page(&self, addr: usize, spare: &mut Option<Frame>) -> Option<Share> {
        let offset = page_floor(self.place(addr).offset);
        if offset >= USER_END {
            return None;
        }
        let mut pages = self.memory.pages.lock();
        let cell = pages.leaf_or_create(offset)?;
        if let Some(frame) = cell.load().frame() {
            return Some(Share::another(frame));
        }
        let frame = Share::of(spare.take().or_else(frames::alloc_zeroed)?).into_raw();
        cell.fill(Pte::leaf(frame, Prot::READ_WRITE));
        Some(Share::another(frame))
    }
}

impl PartialEq for SharedArea {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.origin == other.origin
    }
}

impl Eq for SharedArea {}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        MEMORIES.fetch_sub(1, Ordering::Relaxed);
    }
}
