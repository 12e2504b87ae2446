//! The kernel heap: talc over one contiguous piece of the direct map, claimed at boot.
//!
//! It does not grow: kernel objects are few and bounded (threads, areas, file tables), and a heap
//! that can fail gives the fallible paths something to test. The page-fault and `madvise` paths never
//! allocate from it. Interrupts are off while it is locked, because wake-ups from the timer may
//! allocate.

use crate::sync::IrqMutex;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

/// The allocator behind `alloc`.
struct KernelHeap(IrqMutex<Talc<Manual, DefaultBinning>>);

#[global_allocator]
static HEAP: KernelHeap = KernelHeap(IrqMutex::new(Talc::new(Manual)));

/// Gives the heap its memory. Called once at boot.
///
/// # Safety
/// `base..base + bytes` is mapped, writable, and belongs to the heap from now on.
pub unsafe fn init(base: *mut u8, bytes: usize) {
    let mut heap = HEAP.0.lock();
    // SAFETY: the caller gives the memory away for good.
    let end = unsafe { heap.claim(base, bytes) };
    assert!(
        end.is_some(),
        "the kernel heap needs more than {bytes} bytes"
    );
}

// SAFETY: talc hands out disjoint blocks of the claimed memory; the lock serializes it.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` is not zero-sized, by the contract of `GlobalAlloc`.
        let block = unsafe { self.0.lock().allocate(layout) };
        block.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `alloc` with this layout, by the contract of `GlobalAlloc`.
        unsafe { self.0.lock().deallocate(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as `dealloc`; `bytes` is not zero.
        if unsafe { self.0.lock().try_realloc_in_place(block, layout, bytes) } {
            return block;
        }
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
