//! Cache lines: the hint that a line will be written; and what has been fetched of lines that hold instructions.

/// Asks for the cache line at `address` in a state that can be written (PREFETCHW in APM vol. 3 and
/// SDM vol. 2). A hint: it never faults, whatever the address, and processors without it treat the
/// opcode as a NOP in 64-bit mode. Any privilege level, any context.
#[inline]
pub fn prefetch_write(address: usize) {
    // SAFETY: PREFETCHW changes no register, flag or memory content and never faults.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
}

/// From here on this CPU executes nothing that it fetched or decoded before: CR2 is written with what it has, which is serialising (SDM vol. 3A, "Serializing Instructions"; APM vol. 2,
/// "Serializing Instructions") and leaves no guest. For `Platform::synchronise_here`. CPL 0, any context, NMI handlers too. (IRET to the next instruction would let other NMIs in
/// there, CPUID leaves guests, SERIALIZE is newer.)
#[inline]
pub fn synchronise() {
    // SAFETY: CPL 0. A page fault between the two is an NMI handler's, of which nobody else is to see anything.
    unsafe {
        core::arch::asm!(
            "mov {address}, cr2",
            "mov cr2, {address}",
            "jmp 2f",
            "2:",
            address = out(reg) _, options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::prefetch_write;

    #[test]
    fn any_address_will_do() {
        let value = 7u64;
        prefetch_write(core::ptr::from_ref(&value).addr());
        prefetch_write(0);
        prefetch_write(usize::MAX);
        assert_eq!(core::hint::black_box(value), 7);
    }
}
