//! Barriers, on LoongArch only.

use core::arch::asm;

/// `DBAR 0`: nothing behind it is executed before all loads and stores in front of it are complete (reference manual vol. 1, 2.2.8.1 "DBAR"). Any
/// context; a barrier for the compiler, too.
#[inline]
pub fn full() {
    // SAFETY: no effect but ordering; not `nomem`, so the compiler orders too.
    unsafe { asm!("dbar 0", options(nostack, preserves_flags)) };
}

/// `IBAR 0`: what this CPU fetches behind it sees all its stores in front of it (vol. 1, 2.2.8.2 "IBAR"). For `Platform::synchronise_here`. Any context.
#[inline]
pub fn instructions() {
    // SAFETY: no effect but ordering; not `nomem`, so the compiler orders too.
    unsafe { asm!("ibar 0", options(nostack, preserves_flags)) };
}
