//! Cache lines: the hint that a line will be written.

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
