//! The few machine operations that interrupts are made of.

use core::ptr::NonNull;

use super::sbi::{SbiArguments, SbiReturn};

/// How [`Ipi`](super::Ipi) and [`RemoteFences`](super::RemoteFences) reach the machine. `Hardware` (on `riscv64` targets) is the real thing; tests emulate. All methods act on
/// the hart that calls them.
///
/// The firmware starts and stops harts, and a store to a device can do anything. So safe code cannot reach them:
///
/// ```compile_fail,E0133
/// fn shut_down(port: &impl shootdown_riscv::ipi::Port) {
///     port.sbi_call(0x5352_5354, 0, [0; 4]);
/// }
/// ```
pub trait Port {
    /// FENCE of everything: earlier accesses of this hart, of memory, devices and control registers, are seen by all before later ones.
    fn fence(&self);
    /// ECALL.
    ///
    /// # Safety
    ///
    /// 1. What the function does breaks none of Rust's rules: some start harts, or write memory.
    unsafe fn sbi_call(&self, extension: u64, function: u64, arguments: SbiArguments) -> SbiReturn;
    /// Stores a word into a device's register.
    ///
    /// # Safety
    ///
    /// 1. `register` is mapped, for writing, as device memory, and aligned.
    /// 2. What the store does breaks none of Rust's rules.
    unsafe fn write_word(&self, register: NonNull<u32>, value: u32);
    /// Clears `sip.SSIP`, the pending bit of supervisor software interrupts.
    fn clear_software_interrupt(&self);
    /// Reads `stopei` and claims what it names, by one CSRRW.
    ///
    /// # Safety
    ///
    /// 1. The hart has [Ssaia](crate::Features::SSAIA) and an IMSIC (else an illegal instruction).
    unsafe fn claim_external_interrupt(&self) -> u64;
}
