//! Zeroing a page: most of the time of a page fault.

use super::layout::PAGE_SIZE;
use core::arch::asm;

/// Fills one page with zeros.
///
/// `rep stosq` is what processors with fast strings do best (Intel optimization manual, "REP STOSB
/// and memory clearing"); it also leaves the vector registers alone, which belong to user code here.
///
/// # Safety
/// `page` is page-aligned, writable, and owned by the caller.
pub unsafe fn clear_page(page: *mut [u64; PAGE_SIZE / 8]) {
    // SAFETY: writes PAGE_SIZE bytes from `page` up, which the caller owns; the direction flag is
    // clear by the calling convention.
    unsafe {
        asm!(
            "rep stosq",
            inout("rcx") PAGE_SIZE / 8 => _,
            inout("rdi") page => _,
            in("rax") 0,
            options(nostack, preserves_flags),
        );
    }
}
