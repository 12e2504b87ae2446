//! What differs between processors: the same items in each.

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod processor;

use core::sync::atomic::AtomicUsize;

pub use processor::*;

/// What QEMU ends with.
const ENDS_WELL: u32 = 33;
const ENDS_BADLY: u32 = 35;

/// What the device tree has.
#[cfg(not(target_arch = "x86_64"))]
pub fn command_line() -> alloc::string::String {
    axhal::dtb::get_chosen_bootargs().unwrap_or("").into()
}

/// ArceOS knows the frequency of its clock.
#[cfg(not(target_arch = "x86_64"))]
pub fn reference_ns() -> Option<u64> {
    None
}

unsafe extern "C" {
    /// Loads the word at `address` into `word`; false if `abandon` was called meanwhile with what is in `stack`.
    ///
    /// # Safety
    /// 1. Interrupts are off, and only a fault of this load calls `abandon`.
    /// 2. `word` may be written, and a load of `address` has no effect.
    pub fn load_or_abandon(address: usize, stack: &AtomicUsize, word: *mut u64) -> bool;

    /// Has `load_or_abandon` return false.
    ///
    /// # Safety
    /// 1. `stack` is what that has stored, and it waits for its load.
    pub fn abandon(stack: usize) -> !;
}
