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

/// From here on this CPU executes nothing that it fetched or decoded before: an IRET to the next instruction, which is serialising at every privilege level and under every
/// hypervisor without an exit (SDM vol. 3A, "Serializing Instructions"; SERIALIZE is newer, CPUID and CR3 exit). For `Platform::synchronise_here`. Not in an NMI handler: IRET lets NMIs
/// in again.
#[inline]
pub fn synchronise() {
    // SAFETY: it goes on behind it, with the same stack, selectors and flags; the frame lies below the stack pointer, where nothing of the compiler's is.
    unsafe {
        core::arch::asm!(
            "mov {before}, rsp",
            "mov {selector:e}, ss",
            "push {selector}",
            "push {before}",
            "pushfq",
            "mov {selector:e}, cs",
            "push {selector}",
            "lea {selector}, [rip + 2f]",
            "push {selector}",
            "iretq",
            "2:",
            before = out(reg) _, selector = out(reg) _);
    }
}

#[cfg(test)]
mod tests {
    use super::{prefetch_write, synchronise};

    #[test]
    fn it_goes_on_behind() {
        let before = core::hint::black_box([1u64, 2, 3]);
        synchronise();
        assert_eq!(before, [1, 2, 3]);
    }

    #[test]
    fn any_address_will_do() {
        let value = 7u64;
        prefetch_write(core::ptr::from_ref(&value).addr());
        prefetch_write(0);
        prefetch_write(usize::MAX);
        assert_eq!(core::hint::black_box(value), 7);
    }
}
