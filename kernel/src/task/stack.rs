//! Kernel stacks of threads.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use crate::arch::stacks::KERNEL_STACK_BYTES;

/// Fills the lowest words of a stack; found changed, the stack has overflowed.
const CANARY: u64 = 0x5348_4f4f_5444_4f57;

/// Words of canary: one frame that skips a few words without writing them is still noticed.
const CANARY_WORDS: usize = 8;

/// A kernel stack on the heap.
///
/// The heap lies in the direct map of memory, which has no room for a guard page, so the lowest
/// words hold a canary that every switch checks.
#[derive(Debug)]
pub(super) struct KernelStack {
    bottom: NonNull<u64>,
}

// SAFETY: the stack is memory owned by this value; sharing a reference only reads the canary.
unsafe impl Send for KernelStack {}
// SAFETY: as above.
unsafe impl Sync for KernelStack {}

impl KernelStack {
    const LAYOUT: Layout = match Layout::from_size_align(KERNEL_STACK_BYTES, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("stack layout"),
    };

    /// A fresh stack, or `None` when the heap is full.
    pub fn new() -> Option<Self> {
        // SAFETY: the layout has a non-zero size.
        let bottom = NonNull::new(unsafe { alloc(Self::LAYOUT) })?.cast::<u64>();
        for word in 0..CANARY_WORDS {
            // SAFETY: the canary words lie inside the allocation, which is aligned to 64.
            let place = unsafe { bottom.add(word) };
            // SAFETY: as above; nobody else knows the memory yet.
            unsafe { place.write(CANARY) };
        }
        Some(Self { bottom })
    }

    /// One past the highest byte: where the stack pointer starts.
    pub fn top(&self) -> usize {
        self.bottom.as_ptr() as usize + KERNEL_STACK_BYTES
    }

    /// Has nothing run over the low end yet?
    pub fn is_intact(&self) -> bool {
        (0..CANARY_WORDS).all(|word| {
            // SAFETY: the canary words lie inside the allocation.
            let place = unsafe { self.bottom.add(word) };
            // SAFETY: as above; volatile because an overflow writes behind the compiler's back.
            unsafe { place.read_volatile() == CANARY }
        })
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, freed once; the thread that ran on it has
        // been switched away from for good (the scheduler holds a reference until then).
        unsafe { dealloc(self.bottom.as_ptr().cast(), Self::LAYOUT) }
    }
}
