//! RISC-V, QEMU's machine `virt`.

use core::arch::{asm, naked_asm};
use core::ptr::write_volatile;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use alloc::string::String;

pub use page_table_entry::riscv::Rv64PTE as Entry;

/// Levels of page tables: Sv39.
pub const LEVELS: usize = 3;

/// sstatus.SIE, as `IrqSave` keeps it.
const INTERRUPTS_ON: usize = 1 << 1;

/// QEMU's device sifive_test: a write of this, with a code in the upper half, ends QEMU with the code.
const TEST_DEVICE: usize = 0x10_0000;
const ENDS: u32 = 0x3333;
/// What a PC under QEMU ends with.
const ENDS_WELL: u32 = 33;
const ENDS_BADLY: u32 = 35;

/// Whether a state of `IrqSave` has interrupts on.
pub fn means_enabled(state: usize) -> bool {
    state & INTERRUPTS_ON != 0
}

/// Ends the machine, and QEMU.
pub fn end(is_good: bool) -> ! {
    let code = if is_good { ENDS_WELL } else { ENDS_BADLY };
    if let Ok(device) = axmm::iomap(TEST_DEVICE.into(), 0x1000) {
        // SAFETY: a register of QEMU's, which ends with the write.
        unsafe { write_volatile(device.as_mut_ptr().cast::<u32>(), code << 16 | ENDS) };
    }
    axhal::power::system_off()
}

/// What the device tree has.
pub fn command_line() -> String {
    axhal::dtb::get_chosen_bootargs().unwrap_or("").into()
}

/// ArceOS knows the frequency of its clock.
pub fn reference_ns() -> Option<u64> {
    None
}

/// Orders what was written before an interrupt is sent.
pub fn fence_before_ipi() {
    // ORDERING: stores to memory before the environment call that sends it; the handler's look comes after (duty 5).
    fence(Ordering::SeqCst);
}

/// Drops every translation of this CPU.
pub fn flush_all() {
    // SAFETY: dropping translations changes nothing that a program sees.
    unsafe { asm!("sfence.vma", options(nostack)) };
}

/// Loads the word at `address` into `word`; false if `abandon` was called meanwhile with what is in `stack`.
///
/// # Safety
/// 1. Interrupts are off, and only a fault of this load calls `abandon`.
/// 2. `word` may be written, and a load of `address` has no effect.
#[unsafe(naked)]
pub unsafe extern "C" fn load_or_abandon(
    address: usize,
    stack: &AtomicUsize,
    word: *mut u64,
) -> bool {
    naked_asm!(
        "addi sp, sp, -112",
        "sd ra, 0(sp)",
        "sd s0, 8(sp)",
        "sd s1, 16(sp)",
        "sd s2, 24(sp)",
        "sd s3, 32(sp)",
        "sd s4, 40(sp)",
        "sd s5, 48(sp)",
        "sd s6, 56(sp)",
        "sd s7, 64(sp)",
        "sd s8, 72(sp)",
        "sd s9, 80(sp)",
        "sd s10, 88(sp)",
        "sd s11, 96(sp)",
        "sd sp, 0(a1)",
        "ld t0, 0(a0)",
        "sd t0, 0(a2)",
        "li a0, 1",
        "tail {leave}",
        leave = sym leave,
    )
}

/// Has `load_or_abandon` return false.
///
/// # Safety
/// 1. `stack` is what that has stored, and it waits for its load.
#[unsafe(naked)]
pub unsafe extern "C" fn abandon(stack: usize) -> ! {
    naked_asm!("mv sp, a0", "li a0, 0", "tail {leave}", leave = sym leave)
}

#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "ld ra, 0(sp)",
        "ld s0, 8(sp)",
        "ld s1, 16(sp)",
        "ld s2, 24(sp)",
        "ld s3, 32(sp)",
        "ld s4, 40(sp)",
        "ld s5, 48(sp)",
        "ld s6, 56(sp)",
        "ld s7, 64(sp)",
        "ld s8, 72(sp)",
        "ld s9, 80(sp)",
        "ld s10, 88(sp)",
        "ld s11, 96(sp)",
        "addi sp, sp, 112",
        "ret",
    )
}
