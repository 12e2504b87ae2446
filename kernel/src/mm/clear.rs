//! Zeroing a page: most of the time of a page fault.
//!
//! Two ways, because no single one is good everywhere: `rep stosq` is best on processors with fast
//! string operations (30 ns against 66 ns a page on one such host), plain stores under emulators that
//! interpret each repetition (560 ns against 370 ns under QEMU's TCG). [`calibrate`] measures once at
//! boot. Vector stores are no option: the vector registers belong to user code.

use super::layout::PAGE_SIZE;
use core::arch::asm;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicBool, Ordering};

/// A page as a row of words.
pub type Page = [u64; PAGE_SIZE / 8];

/// Words that one turn of the store loop writes.
const UNROLLED: usize = 16;
const _: () = assert!(size_of::<Page>().is_multiple_of(UNROLLED * size_of::<u64>()));

/// Whether plain stores were faster than `rep stosq` on this machine.
static PLAIN_STORES: AtomicBool = AtomicBool::new(false);

/// Fills one page with zeros.
///
/// # Safety
/// `page` is page-aligned, writable, and owned by the caller.
pub unsafe fn clear_page(page: *mut Page) {
    if PLAIN_STORES.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises.
        unsafe { clear_by_stores(page) };
    } else {
        // SAFETY: as the caller promises.
        unsafe { clear_by_string(page) };
    }
}

/// Finds out which way is faster here, on a page that may be overwritten.
pub fn calibrate(page: &mut Page) {
    const RUNS: usize = 16;
    let by_string = best_of(RUNS, || {
        // SAFETY: `page` is borrowed exclusively.
        unsafe { clear_by_string(page) }
    });
    let by_stores = best_of(RUNS, || {
        // SAFETY: as above.
        unsafe { clear_by_stores(page) }
    });
    PLAIN_STORES.store(by_stores < by_string, Ordering::Relaxed);
}

fn best_of(runs: usize, mut work: impl FnMut()) -> u64 {
    let run = |_| {
        let started = ticks();
        work();
        ticks().wrapping_sub(started)
    };
    (0..runs).map(run).min().unwrap_or(u64::MAX)
}

fn ticks() -> u64 {
    // SAFETY: every 64-bit processor has a time-stamp counter.
    unsafe { _rdtsc() }
}

/// # Safety
/// As [`clear_page`].
unsafe fn clear_by_string(page: *mut Page) {
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

/// # Safety
/// As [`clear_page`].
unsafe fn clear_by_stores(page: *mut Page) {
    // SAFETY: `page` is aligned, writable and owned by the caller; zeroes are valid words.
    let page = unsafe { &mut *page };
    for words in page.as_chunks_mut::<UNROLLED>().0 {
        for word in words {
            let word: *mut u64 = word;
            // Volatile, or the compiler makes a call of `memset` of it, which is `rep stosb`.
            // SAFETY: a valid reference.
            unsafe { word.write_volatile(0) };
        }
    }
}
