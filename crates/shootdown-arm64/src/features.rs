//! What a processor has, by its ID registers.
//!
//! Fields: DDI 0487, D24.2, under the name of each register.

use crate::tlb::{AsidBits, Granule};

/// The ID registers that matter here. Hosts that have read them already fill them in; `IdRegisters::read` does so on the CPU itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct IdRegisters {
    /// MIDR_EL1.
    pub midr: u64,
    /// ID_AA64ISAR0_EL1.
    pub isar0: u64,
    /// ID_AA64MMFR0_EL1.
    pub mmfr0: u64,
    /// ID_AA64MMFR1_EL1.
    pub mmfr1: u64,
    /// ID_AA64MMFR2_EL1.
    pub mmfr2: u64,
    /// ID_AA64PFR0_EL1.
    pub pfr0: u64,
    /// ID_AA64PFR1_EL1.
    pub pfr1: u64,
}

#[cfg(target_arch = "aarch64")]
impl IdRegisters {
    /// Those of this CPU. CPUs of one machine may differ.
    ///
    /// # Safety
    ///
    /// 1. EL1 or above.
    pub unsafe fn read() -> Self {
        let (midr, isar0, pfr0, pfr1): (u64, u64, u64, u64);
        let (mmfr0, mmfr1, mmfr2): (u64, u64, u64);
        // SAFETY: 1. the caller's; pure reads. MMFR2 is read by its number: older assemblers do not know it; what is not implemented there reads as zero (DDI 0487, D24.2).
        unsafe {
            core::arch::asm!("mrs {}, midr_el1", "mrs {}, id_aa64isar0_el1", "mrs {}, id_aa64pfr0_el1", "mrs {}, id_aa64pfr1_el1",
                "mrs {}, id_aa64mmfr0_el1", "mrs {}, id_aa64mmfr1_el1", "mrs {}, s3_0_c0_c7_2",
                out(reg) midr, out(reg) isar0, out(reg) pfr0, out(reg) pfr1, out(reg) mmfr0, out(reg) mmfr1, out(reg) mmfr2,
                options(nomem, nostack, preserves_flags));
        }
        Self {
            midr,
            isar0,
            mmfr0,
            mmfr1,
            mmfr2,
            pfr0,
            pfr1,
        }
    }
}

/// What one CPU has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    registers: IdRegisters,
}

const fn field(register: u64, low_bit: u32) -> u64 {
    register >> low_bit & 0xf
}

impl Features {
    /// By these registers.
    pub const fn of(registers: IdRegisters) -> Self {
        Self { registers }
    }

    /// The model, for [`Errata`](crate::Errata).
    pub const fn midr(&self) -> crate::Midr {
        crate::Midr::new(self.registers.midr)
    }

    /// FEAT_TLBIRANGE, the invalidations of ranges: ID_AA64ISAR0_EL1.TLB is 2 (1 has only the outer shareable forms).
    pub const fn has_tlbi_ranges(&self) -> bool {
        field(self.registers.isar0, 56) >= 2
    }

    /// How wide ASIDs can be: ID_AA64MMFR0_EL1.ASIDBits. TCR_EL1.AS chooses ([`Tlb::start`](crate::Tlb::start)).
    pub const fn asid_bits(&self) -> AsidBits {
        match field(self.registers.mmfr0, 4) {
            0 => AsidBits::Eight,
            _ => AsidBits::Sixteen,
        }
    }

    /// Whether stage 1 translates by this granule; [`Tlb::new`](crate::Tlb::new) takes no other: ID_AA64MMFR0_EL1.TGran4, TGran16 and TGran64. The codes of the three differ: 15 is "no" for the outer ones, 0 for the middle one.
    pub const fn has_granule(&self, granule: Granule) -> bool {
        match granule {
            Granule::Kib4 => field(self.registers.mmfr0, 28) != 0xf,
            Granule::Kib16 => field(self.registers.mmfr0, 20) != 0,
            Granule::Kib64 => field(self.registers.mmfr0, 24) != 0xf,
        }
    }

    /// Whether the CPU has the GIC's system registers, ICC_SGI1R_EL1 among them (ID_AA64PFR0_EL1.GIC). They are to be enabled, too (ICC_SRE_EL1). Ask before [`gic::SystemRegisters`](crate::gic) is made.
    pub const fn has_gic_registers(&self) -> bool {
        field(self.registers.pfr0, 24) != 0
    }

    /// FEAT_SME (ID_AA64PFR1_EL1.SME).
    pub const fn has_sme(&self) -> bool {
        field(self.registers.pfr1, 24) != 0
    }
}

/// Advice for the host's own page tables; nothing here depends on it.
impl Features {
    /// FEAT_HAFDBS: the walker may set access and dirty bits in entries (ID_AA64MMFR1_EL1.HAFDBS), where TCR_EL1.HA and HD let it. Then a host changes entries by atomic operations.
    pub const fn has_hardware_access_flag(&self) -> bool {
        field(self.registers.mmfr1, 0) != 0
    }

    /// FEAT_BBM's level, 0 to 2 (ID_AA64MMFR2_EL1.BBM): what a change of a block's size may leave out of [break before make](crate::tlb#break-before-make).
    pub const fn break_before_make_level(&self) -> u8 {
        match field(self.registers.mmfr2, 52) {
            0 => 0,
            1 => 1,
            _ => 2,
        }
    }
}
