//! The instruction CPUID.

use core::arch::x86_64::{__cpuid_count, CpuidResult};

/// CPUID. The standard library's function is safe in Rust 1.95 and unsafe in 1.88.
pub(crate) fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    #[allow(unused_unsafe, reason = "older compilers want the block")]
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing but its outputs.
    unsafe {
        __cpuid_count(leaf, subleaf)
    }
}

#[cfg(test)]
mod tests {
    use super::cpuid;
    use std::is_x86_feature_detected;

    #[test]
    fn leaves_and_subleaves_are_those_that_the_standard_library_reads() {
        if cpuid(0, 0).eax < 7 {
            return;
        }
        let [basic, structured, extended] = [1, 7, 0x8000_0001].map(|leaf| cpuid(leaf, 0));
        // Features whose bits alone decide, whatever the system has switched on.
        let bits = [
            (basic.ecx, is_x86_feature_detected!("sse3")),
            (basic.ecx >> 30, is_x86_feature_detected!("rdrand")),
            (structured.ebx >> 3, is_x86_feature_detected!("bmi1")),
            (structured.ebx >> 8, is_x86_feature_detected!("bmi2")),
            (structured.ebx >> 18, is_x86_feature_detected!("rdseed")),
            (extended.ecx >> 5, is_x86_feature_detected!("lzcnt")),
        ];
        for (nth, (bit, is_there)) in bits.into_iter().enumerate() {
            assert_eq!(bit & 1 != 0, is_there, "row {nth}");
        }
    }
}
