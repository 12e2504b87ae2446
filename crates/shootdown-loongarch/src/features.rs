//! What the processor has: the words of CPUCFG.
//!
//! Source of each bit: reference manual vol. 1, 2.2.10.5 "CPUCFG", table "The configuration information accessible by the CPUCFG instruction", cited as `word.field[bits]`. No errata
//! of translation were found published, so there is no list of them here.

/// The words 0 to 3 of CPUCFG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    words: [u32; 4],
}

impl Features {
    /// What these words say, word 0 first: for tests, and hosts that have read them.
    pub const fn from_words(words: [u32; 4]) -> Self {
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
        Self::from_words([read(0), read(1), read(2), read(3)])
    }

    const fn bits(&self, word: usize, low: u32, count: u32) -> u32 {
        self.words[word] >> low & ((1 << count) - 1)
    }

    const fn bit(&self, word: usize, bit: u32) -> bool {
        self.bits(word, bit, 1) != 0
    }

    /// What both have: for hosts with several kinds of CPUs. Widths and depths are the smaller ones; the identity is this one's.
    pub const fn common(&self, other: &Self) -> Self {
        const fn smaller(one: u32, other: u32, mask: u32) -> u32 {
            if one & mask < other & mask {
                one & mask
            } else {
                other & mask
            }
        }
        let (a, b) = (&self.words, &other.words);
        // 1.ARCH, 1.PALEN and 1.VALEN; 3.SPW_LVL.
        let (numbers1, numbers3) = ([0x3, 0xff0, 0xf_f000], 0x700);
        let all1 = numbers1[0] | numbers1[1] | numbers1[2];
        let word1 = a[1] & b[1] & !all1
            | smaller(a[1], b[1], numbers1[0])
            | smaller(a[1], b[1], numbers1[1])
            | smaller(a[1], b[1], numbers1[2]);
        let word3 = a[3] & b[3] & !numbers3 | smaller(a[3], b[3], numbers3);
        Self::from_words([a[0], word1, a[2] & b[2], word3])
    }

    /// Who made it, and which one it is: 0.PRID.
    pub const fn identity(&self) -> u32 {
        self.words[0]
    }

    /// Whether it is LA64: `1.ARCH[1:0]` is 2. This crate is for no other.
    pub const fn is_la64(&self) -> bool {
        self.bits(1, 0, 2) == 2
    }

    /// Whether it translates by page tables: `1.PGMMU[2]`.
    pub const fn has_page_mapping(&self) -> bool {
        self.bit(1, 2)
    }

    /// Whether it has IOCSRs, and with them [interrupts](crate::ipi) for other CPUs: `1.IOCSR[3]`.
    pub const fn has_iocsr(&self) -> bool {
        self.bit(1, 3)
    }

    /// Bits of a physical address: `1.PALEN[11:4]` and 1.
    pub const fn physical_bits(&self) -> u32 {
        self.bits(1, 4, 8) + 1
    }

    /// Bits of a virtual address: `1.VALEN[19:12]` and 1. The highest of them chooses between CSR.PGDL and CSR.PGDH.
    pub const fn virtual_bits(&self) -> u32 {
        self.bits(1, 12, 8) + 1
    }

    /// Whether entries can forbid loads (NR): `1.RI[21]`.
    pub const fn has_no_read(&self) -> bool {
        self.bit(1, 21)
    }

    /// Whether entries can forbid fetches (NX): `1.EP[22]`.
    pub const fn has_no_execute(&self) -> bool {
        self.bit(1, 22)
    }

    /// Whether directory entries can map huge pages: `1.HP[24]`.
    pub const fn has_huge_pages(&self) -> bool {
        self.bit(1, 24)
    }

    /// Whether it runs guests: `2.LVZ[10]`. INVTLB means the guest's own or the host's entries then, by CSRs that this crate does not touch.
    pub const fn has_guests(&self) -> bool {
        self.bit(2, 10)
    }

    /// Whether there are LDDIR and LDPTE for `refill`: `2.LSPW[21]`.
    pub const fn has_walk_instructions(&self) -> bool {
        self.bit(2, 21)
    }

    /// Whether it can walk by itself: `2.HPTW[24]` (in the manual from version 1.10 on; the 3A6000). Then refills are not seen, and `refill::count` counts none.
    pub const fn has_hardware_walk(&self) -> bool {
        self.bit(2, 24)
    }

    /// Whether it keeps the TLB of fetches as the other one: `3.ITLBTHMC[6]`. Where it does not, the manual names no instruction that a host could do it with; Linux does not look.
    pub const fn keeps_fetch_tlb(&self) -> bool {
        self.bit(3, 6)
    }

    /// Whether fetches see stores without more than `IBAR 0`: `3.ICHMC[7]`.
    pub const fn keeps_fetch_cache(&self) -> bool {
        self.bit(3, 7)
    }

    /// How many levels of directories LDDIR knows: `3.SPW_LVL[10:8]`.
    pub const fn walk_levels(&self) -> u32 {
        self.bits(3, 8, 3)
    }

    /// Whether LDPTE fills a huge page as its halves: `3.SPW_HP_HF[11]`.
    pub const fn halves_huge_pages(&self) -> bool {
        self.bit(3, 11)
    }

    /// Whether DBAR has weaker forms than 0: `3.DBAR_hints[17]`. Nothing here uses them: a walk is ordered by none of them, as far as the manual says.
    pub const fn has_weaker_barriers(&self) -> bool {
        self.bit(3, 17)
    }
}

/// How large the TLB is: CSR.PRCFG3 (vol. 1, 7.4.15 "Privileged Resource Configuration 3").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbShape {
    /// Entries for pages of any size.
    pub mtlb_entries: u32,
    /// Ways of the part with pages of one size; 0 where there is none.
    pub stlb_ways: u32,
    /// Sets of each way.
    pub stlb_sets: u32,
}

impl TlbShape {
    /// What a value of the register says. None for a type that the manual does not have.
    pub const fn of_prcfg3(value: u64) -> Option<Self> {
        const fn field(value: u64, low: u32, mask: u8) -> u32 {
            // At most 8 bits by the mask.
            (value >> low) as u32 & mask as u32
        }
        match value & 0xf {
            0 => Some(Self {
                mtlb_entries: 0,
                stlb_ways: 0,
                stlb_sets: 0,
            }),
            1 => Some(Self {
                mtlb_entries: field(value, 4, 0xff) + 1,
                stlb_ways: 0,
                stlb_sets: 0,
            }),
            2 => Some(Self {
                mtlb_entries: field(value, 4, 0xff) + 1,
                stlb_ways: field(value, 12, 0xff) + 1,
                stlb_sets: 1 << field(value, 20, 0x1f),
            }),
            _ => None,
        }
    }
}
