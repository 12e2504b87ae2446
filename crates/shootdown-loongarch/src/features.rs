//! What the processor has that this crate relies on: words 1 and 2 of CPUCFG, and CSR.PRCFG1. ([`PageSize::is_supported`](crate::tlb::PageSize::is_supported) has PRCFG2.)
//!
//! Source of each bit of CPUCFG: reference manual vol. 1, 2.2.10.5 "CPUCFG", table "The configuration information accessible by the CPUCFG instruction", cited as `word.field[bits]`. No
//! errata of translation were found published, so there is no list of them here.

/// The words 1 and 2 of CPUCFG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    words: [u32; 2],
}

impl Features {
    /// What these words say, word 1 first: for tests, and hosts that have read them.
    pub const fn from_words(words: [u32; 2]) -> Self {
        Self { words }
    }

    /// What the calling CPU says. Any privilege level, any context.
    #[cfg(target_arch = "loongarch64")]
    pub fn detect() -> Self {
        let read = |word: u32| -> u32 {
            let value: u32;
            // SAFETY: reads a word that says what there is.
            unsafe {
                core::arch::asm!("cpucfg {}, {}", out(reg) value, in(reg) word, options(nomem, nostack));
            }
            value
        };
        Self::from_words([read(1), read(2)])
    }

    const fn bits(&self, word: usize, low: u32, count: u32) -> u32 {
        self.words[word - 1] >> low & ((1 << count) - 1)
    }

    /// Whether it is LA64: `1.ARCH[1:0]` is 2. This crate is for no other.
    pub const fn is_la64(&self) -> bool {
        self.bits(1, 0, 2) == 2
    }

    /// Whether it translates by page tables: `1.PGMMU[2]`.
    pub const fn has_page_mapping(&self) -> bool {
        self.bits(1, 2, 1) != 0
    }

    /// Whether it has IOCSRs, and with them [interrupts](crate::ipi) for other CPUs: `1.IOCSR[3]`.
    pub const fn has_iocsr(&self) -> bool {
        self.bits(1, 3, 1) != 0
    }

    /// Bits of a virtual address: `1.VALEN[19:12]` and 1. The highest of them chooses between CSR.PGDL and CSR.PGDH, so [tables](crate::walk::Walk::address_bits) translate at most one less.
    pub const fn virtual_bits(&self) -> u32 {
        self.bits(1, 12, 8) + 1
    }

    /// Whether there are LDDIR and LDPTE for `refill`: `2.LSPW[21]`.
    pub const fn has_walk_instructions(&self) -> bool {
        self.bits(2, 21, 1) != 0
    }

    /// Whether it can walk by itself: `2.HPTW[24]` (in the manual from version 1.10 on; the 3A6000). Then refills are not seen, and `refill::count` counts none.
    pub const fn has_hardware_walk(&self) -> bool {
        self.bits(2, 24, 1) != 0
    }
}

/// Whether there is a CSR.SAVE7, where `refill` counts: CSR.PRCFG1.SAVENum (vol. 1, 7.4.13 "Privileged Resource Configuration 1"), bits 3:0, is at least 8.
pub const fn has_refill_count(prcfg1: u64) -> bool {
    prcfg1 & 0xf >= 8
}
