//! How the page tables are built, as the processor is told: CSR.PWCL, CSR.PWCH and CSR.STLBPS.
//!
//! Levels are numbered as LDDIR has them (reference manual vol. 1, 4.2.5.1 "LDDIR", 7.5.8 "Page Walk Controller for Lower Half Address Space", 7.5.9 "... for Higher Half"; both halves are
//! walked by both registers). The top level is always Dir3, as in Linux (`setup_ptwalker`), because Dir1 and Dir2 have to begin below bit 32.
//!
//! # Empty directory entries
//!
//! A walk does not stop at a directory entry that is 0. LDDIR has no entry that is invalid (vol. 1, 4.2.5.1; QEMU: `helper_lddir`): the walk goes on at physical page 0, and what lies there becomes a translation. Only the last level can say that
//! there is nothing. So a directory entry for which there is no table leads to an *empty* table, on each level: the last one's has invalid entries, and the others' lead to the next one. (Linux: `invalid_pmd_table`, `invalid_pte_table`.)
//!
//! One table serves as all of them, in every root, if all its entries are its own physical address: V, bit 0 of that, is clear, so as the entry of a page it is invalid; so is bit 6, so as a directory entry it is no huge page.

use crate::tlb::PageSize;

/// How many levels of tables, the last one counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Levels {
    /// Dir3, Dir1 and the last: 39 bits of address with pages of 4 KiB, 47 with 16 KiB.
    Three,
    /// Dir3, Dir2, Dir1 and the last: 48 bits with pages of 4 KiB, and with these only.
    Four,
}

/// Tables whose entries have 64 bits, each as large as a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    base: PageSize,
    levels: Levels,
}

/// PWCH.HPTW_En: the processor walks by itself (vol. 1 from version 1.10 on; Linux: `CSR_PWCTL1_PTW`).
const HPTW_EN: u64 = 1 << 24;

impl Walk {
    /// Tables of pages of size `base`. None where the registers cannot describe them: Dir2 would begin above bit 31, or the last level above bit 15.
    pub const fn new(base: PageSize, levels: Levels) -> Option<Self> {
        let walk = Self { base, levels };
        let begins_low = match levels {
            Levels::Three => walk.start(1) < 32,
            Levels::Four => walk.start(2) < 32,
        };
        if begins_low { Some(walk) } else { None }
    }

    /// The size of the smallest pages.
    pub const fn base(&self) -> PageSize {
        self.base
    }

    /// Index bits of a level.
    const fn width(&self) -> u64 {
        self.base.shift() as u64 - 3
    }

    /// The lowest address bit that the level indexes by which has so many below it.
    const fn start(&self, below: u64) -> u64 {
        self.base.shift() as u64 + below * self.width()
    }

    /// Bits of an address in one half that the tables translate.
    pub const fn address_bits(&self) -> u64 {
        match self.levels {
            Levels::Three => self.start(3),
            Levels::Four => self.start(4),
        }
    }

    /// What CSR.PWCL is to have.
    pub const fn pwcl(&self) -> u64 {
        let last = self.start(0) | self.width() << 5;
        let dir1 = self.start(1) << 10 | self.width() << 15;
        let dir2 = match self.levels {
            Levels::Three => 0,
            Levels::Four => self.start(2) << 20 | self.width() << 25,
        };
        last | dir1 | dir2
    }

    /// What CSR.PWCH is to have. `by_hardware` where the processor [has](crate::Features::has_hardware_walk) a walker, and it shall walk.
    pub const fn pwch(&self, by_hardware: bool) -> u64 {
        let top = match self.levels {
            Levels::Three => self.start(2),
            Levels::Four => self.start(3),
        };
        top | self.width() << 6 | if by_hardware { HPTW_EN } else { 0 }
    }

    /// Tells the calling CPU, and drops everything that it has cached.
    ///
    /// # Safety
    ///
    /// 1. PLV 0, interrupts off, and the code, the stack and all that is used meanwhile are in a direct-mapped window.
    /// 2. The roots in CSR.PGDL and CSR.PGDH, now and later, have such tables, without a [directory entry that leads nowhere](self#empty-directory-entries); and PRCFG2 [has](PageSize::is_supported) the size.
    /// 3. With `by_hardware`, the processor has a walker, and the kernel knows that it sets V and D by itself.
    #[cfg(target_arch = "loongarch64")]
    pub unsafe fn apply(&self, by_hardware: bool) {
        let shift = u64::from(self.base.shift());
        let words = (self.pwcl(), self.pwch(by_hardware));
        // SAFETY: duties 1 to 3 are the caller's. STLBPS, TLBREHI.PS (0x8e) and TLBIDX.PS (0x10, bits 29:24) have the same size, and no entry of another one stays.
        unsafe {
            core::arch::asm!(
                "dbar 0",
                "invtlb 0x0, $zero, $zero",
                "csrwr {pwcl}, 0x1c",
                "csrwr {pwch}, 0x1d",
                "csrwr {stlbps}, 0x1e",
                "csrwr {tlbrehi}, 0x8e",
                "csrwr {tlbidx}, 0x10",
                "invtlb 0x0, $zero, $zero",
                pwcl = inout(reg) words.0 => _,
                pwch = inout(reg) words.1 => _,
                stlbps = inout(reg) shift => _,
                tlbrehi = inout(reg) shift => _,
                tlbidx = inout(reg) shift << 24 => _,
                options(nostack),
            );
        }
    }
}
