//! The register map, common to both modes.
//!
//! SDM vol. 3A, "Local APIC Register Address Map" (xAPIC: offsets in a 4 KiB page) and "x2APIC
//! Register Address Space" (x2APIC: MSR 0x800 + offset / 16).

use crate::msr::Msr;

/// A register of the local APIC, by its offset in the xAPIC page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are the manual's")]
pub enum Register {
    Id = 0x020,
    Version = 0x030,
    TaskPriority = 0x080,
    EndOfInterrupt = 0x0b0,
    LogicalDestination = 0x0d0,
    /// xAPIC only.
    DestinationFormat = 0x0e0,
    SpuriousVector = 0x0f0,
    ErrorStatus = 0x280,
    LvtCmci = 0x2f0,
    /// In x2APIC mode all 64 bits of the interrupt command.
    CommandLow = 0x300,
    /// xAPIC only.
    CommandHigh = 0x310,
    LvtTimer = 0x320,
    LvtThermal = 0x330,
    LvtPerformance = 0x340,
    LvtLint0 = 0x350,
    LvtLint1 = 0x360,
    LvtError = 0x370,
    TimerInitialCount = 0x380,
    TimerCurrentCount = 0x390,
    TimerDivide = 0x3e0,
    /// x2APIC only.
    SelfIpi = 0x3f0,
}

impl Register {
    /// Offset in the xAPIC page, in bytes.
    pub const fn offset(self) -> u16 {
        self as u16
    }

    /// The same register in x2APIC mode.
    pub const fn msr(self) -> Msr {
        Msr::of_x2apic((self as u16 >> 4) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msr_numbers_match_the_manual() {
        assert_eq!(Register::Id.msr().as_u32(), 0x802);
        assert_eq!(Register::EndOfInterrupt.msr().as_u32(), 0x80b);
        assert_eq!(Register::SpuriousVector.msr().as_u32(), 0x80f);
        assert_eq!(Register::LvtCmci.msr().as_u32(), 0x82f);
        assert_eq!(Register::CommandLow.msr().as_u32(), 0x830);
        assert_eq!(Register::LvtTimer.msr().as_u32(), 0x832);
        assert_eq!(Register::TimerDivide.msr().as_u32(), 0x83e);
        assert_eq!(Register::SelfIpi.msr().as_u32(), 0x83f);
    }
}
