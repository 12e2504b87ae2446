//! The addresses of breakpoints. The kernel has none; guests may, and nothing but this exchanges them.

use core::arch::asm;

/// Loads DR0 to DR3. Without DR7, which #VMEXIT clears, they mean nothing.
pub fn load(addresses: &[u64; 4]) {
    let [first, second, third, fourth] = addresses;
    // SAFETY: CPL 0; no breakpoint is on.
    unsafe {
        asm!("mov dr0, {}", "mov dr1, {}", "mov dr2, {}", "mov dr3, {}",
             in(reg) *first, in(reg) *second, in(reg) *third, in(reg) *fourth,
             options(nostack, nomem, preserves_flags));
    }
}

/// Stores them.
pub fn save(addresses: &mut [u64; 4]) {
    let [first, second, third, fourth] = addresses;
    // SAFETY: CPL 0; reads only.
    unsafe {
        asm!(
            "mov {}, dr0",
            "mov {}, dr1",
            "mov {}, dr2",
            "mov {}, dr3",
            out(reg) * first,
            out(reg) * second,
            out(reg) * third,
            out(reg) * fourth,
            options(nostack, nomem, preserves_flags)
        );
    }
}
