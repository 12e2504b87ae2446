//! What differs between architectures: the same items in each.

#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "riscv64")]
pub use riscv64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;

#[cfg(target_arch = "loongarch64")]
mod loongarch64;
#[cfg(target_arch = "loongarch64")]
pub use loongarch64::*;

unsafe extern "C" {
    /// Loads the word at an address. Where the first instruction faults the trap goes on at `probe_fault`.
    fn probe_word(address: usize) -> Probe;
    /// Returns that it is not mapped.
    fn probe_fault();
}

#[repr(C)]
struct Probe {
    word: u64,
    is_mapped: usize,
}

/// The word at an address, if it is mapped.
pub fn probe(address: usize) -> Option<u64> {
    // SAFETY: a fault there ends it.
    let found = unsafe { probe_word(address) };
    (found.is_mapped != 0).then_some(found.word)
}
