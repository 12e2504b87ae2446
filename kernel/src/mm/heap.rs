//! The kernel heap: talc over one contiguous piece of the direct map, claimed at boot.
//!
//! It does not grow: kernel objects are few and bounded (threads, areas, file tables), and a heap
//! that can fail gives the fallible paths something to test. The page-fault and `madvise` paths never
//! allocate from it. Interrupts are off while it is locked, because wake-ups from the timer may
//! allocate.
//!
//! Large blocks are what user programs can ask for by the megabyte (stacks, area lists, pipes), and
//! whoever allocates one copes with refusal. They leave a share of the heap alone, so that small
//! blocks, where nobody copes, do not fail because of them.

use crate::sync::IrqMutex;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

/// Blocks from this size on leave the reserve alone.
const LARGE_BYTES: usize = 16 << 10;

/// The part of the heap that large blocks leave alone: one in this many.
const RESERVE_SHARE: usize = 4;

struct Heap {
    talc: Talc<Manual, DefaultBinning>,
    total_bytes: usize,
    used_bytes: usize,
}

impl Heap {
    /// Whether `more` bytes may be taken by a block that then has `size` bytes.
    fn allows(&self, more: usize, size: usize) -> bool {
        let reserve = self.total_bytes / RESERVE_SHARE;
        size < LARGE_BYTES || self.used_bytes + reserve + more <= self.total_bytes
    }
}

/// The allocator behind `alloc`.
struct KernelHeap(IrqMutex<Heap>);

#[global_allocator]
static HEAP: KernelHeap = KernelHeap(IrqMutex::new(Heap {
    talc: Talc::new(Manual),
    total_bytes: 0,
    used_bytes: 0,
}));

/// Gives the heap its memory. Called once at boot.
///
/// # Safety
/// `base..base + bytes` is mapped, writable, and belongs to the heap from now on.
pub unsafe fn init(base: *mut u8, bytes: usize) {
    let mut heap = HEAP.0.lock();
    // SAFETY: the caller gives the memory away for good.
    let end = unsafe { heap.talc.claim(base, bytes) };
    assert!(
        end.is_some(),
        "the kernel heap needs more than {bytes} bytes"
    );
    heap.total_bytes = bytes;
}

/// Whether half of it is lent out: then programs get no more of what they could hoard, and there is room for their threads and spaces. Any context;
/// interrupts are off meanwhile.
pub fn is_tight() -> bool {
    let heap = HEAP.0.lock();
    heap.used_bytes > heap.total_bytes / 2
}

/// Bytes that are lent out now. Any context; interrupts are off meanwhile.
#[cfg(feature = "selftest")]
pub fn used_bytes() -> usize {
    HEAP.0.lock().used_bytes
}

// SAFETY: talc hands out disjoint blocks of the claimed memory; the lock serializes it.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut heap = self.0.lock();
        if !heap.allows(layout.size(), layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: `layout` is not zero-sized, by the contract of `GlobalAlloc`.
        match unsafe { heap.talc.allocate(layout) } {
            Some(block) => {
                heap.used_bytes += layout.size();
                block.as_ptr()
            }
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let mut heap = self.0.lock();
        heap.used_bytes -= layout.size();
        // SAFETY: `block` came from `alloc` with this layout, by the contract of `GlobalAlloc`.
        unsafe { heap.talc.deallocate(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let mut heap = self.0.lock();
        let allowed = heap.allows(bytes.saturating_sub(layout.size()), bytes);
        // SAFETY: as `dealloc`; `bytes` is not zero.
        if allowed && unsafe { heap.talc.try_realloc_in_place(block, layout, bytes) } {
            heap.used_bytes = heap.used_bytes - layout.size() + bytes;
            return block;
        }
        drop(heap);
        // SAFETY: `bytes` does not overflow when rounded up to the alignment, by the contract.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: `wanted` is not zero-sized.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            let common = layout.size().min(bytes);
            // SAFETY: both blocks hold `common` bytes and are disjoint.
            unsafe { ptr::copy_nonoverlapping(block, moved, common) };
            // SAFETY: the old block, with its layout; nobody uses it any more.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}
