//! What harts have, and which ones they are.
//!
//! Supervisor mode has no register that lists extensions: the device tree (`riscv,isa`, `riscv,isa-extensions`) or ACPI's RHCT does, and the host hands
//! the names on. Which processor it is, SBI says. All values here are for one hart; a host with different ones takes what [all of them have](Features::both).

use crate::ipi::{self, Extension, SbiError};

/// Extensions that matter to flushes and interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features(u8);

impl Features {
    /// None of them: nothing is used that the base architecture does not have.
    pub const NONE: Self = Self(0);
    /// Fences in three parts, of which the middle one may be repeated (Privileged, "Svinval").
    pub const SVINVAL: Self = Self(1 << 0);
    /// Regions of 64 KiB that look like one page to a TLB (Privileged, "Svnapot"). A fence for one 4 KiB page need not drop the region, so each of them is
    /// fenced: [`Tlb::flush_pages`](crate::tlb::Tlb::flush_pages) does so for every page size below 2 MiB, with or without the extension.
    pub const SVNAPOT: Self = Self(1 << 1);
    /// What becomes valid is visible in bounded time (Privileged, "Svvptc"). So user pages that become present need neither a flush nor, beyond a few spurious faults,
    /// a [retry that fences](crate::tlb::Tlb::retry). Without it an invalid entry may stay cached for ever. It says nothing of entries that were valid.
    pub const SVVPTC: Self = Self(1 << 2);
    /// A page whose A is clear, or that is written while D is clear, faults (Privileged, "Svade"). The handler sets the bit, which is a gained right: it may be flushed by the
    /// [retry](crate::tlb::Tlb::retry). To *clear* A or D takes a flush before it is relied on.
    pub const SVADE: Self = Self(1 << 3);
    /// The walker sets A and D by itself (Privileged, "Svadu"), if the firmware turned that on. So entries change under the host: it changes them by atomic
    /// operations, and looks at D after the flush that takes the right to write.
    pub const SVADU: Self = Self(1 << 4);
    /// The IMSIC's and interrupts' registers of supervisor mode (Advanced Interrupt Architecture, "Ssaia"), for [`Ipi::claim`](crate::ipi::Ipi::claim).
    pub const SSAIA: Self = Self(1 << 5);

    const NAMES: [(&'static str, Self); 6] = [
        ("svinval", Self::SVINVAL),
        ("svnapot", Self::SVNAPOT),
        ("svvptc", Self::SVVPTC),
        ("svade", Self::SVADE),
        ("svadu", Self::SVADU),
        ("ssaia", Self::SSAIA),
    ];

    /// The features in a list of extensions: the string `riscv,isa` (`rv64imafdc_svinval_..`), or the strings of `riscv,isa-extensions` as they lie in the tree,
    /// each with a zero behind it. Case does not matter; names that mean nothing here are passed over.
    pub fn parse(list: &str) -> Self {
        let names = list.split(['_', '\0', ',', ' ']);
        names.fold(Self::NONE, |sum, name| {
            let known = Self::NAMES.into_iter();
            let found = known.filter(|(known, _)| known.eq_ignore_ascii_case(name));
            found.fold(sum, |sum, (_, feature)| sum.with(feature))
        })
    }

    /// These and those.
    pub const fn with(self, those: Self) -> Self {
        Self(self.0 | those.0)
    }

    /// What both harts have.
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `those` are here.
    pub const fn has(self, those: Self) -> bool {
        self.0 & those.0 == those.0
    }
}

/// `mvendorid` of SiFive (Linux: `SIFIVE_VENDOR_ID`).
const SIFIVE: u64 = 0x489;

/// Which processor it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Processor {
    /// `mvendorid`.
    pub vendor: u64,
    /// `marchid`.
    pub architecture: u64,
    /// `mimpid`.
    pub implementation: u64,
}

impl Processor {
    /// The calling hart's, by SBI's base extension, functions 4 to 6 (SBI, "Base Extension"). Any context.
    ///
    /// # Errors
    ///
    /// What the firmware returns; it has the functions from version 0.2 on, and they never fail.
    pub fn read<P: ipi::Port>(port: &P) -> Result<Self, SbiError> {
        // SAFETY: these three read, and nothing else.
        let get = |function| unsafe { port.sbi_call(Extension::BASE, function, [0; 4]) };
        Ok(Self {
            vendor: get(4).result()?,
            architecture: get(5).result()?,
            implementation: get(6).result()?,
        })
    }

    /// SiFive's erratum CIP-1200: an SFENCE.VMA that names an address or an ASID does not drop what it should. Processors as in Linux,
    /// `errata_cip_1200_check_func` (`arch/riscv/errata/sifive/errata.c`); the remedy as there (`ALT_SFENCE_VMA_ASID` and the like): every fence is
    /// one of everything.
    pub const fn has_cip_1200(self) -> bool {
        let core = self.architecture == 0x8000_0000_0000_0007 || self.architecture == 1;
        let is_old = self.implementation & 0xff_ffff <= 0x20_0630;
        self.vendor == SIFIVE && core && is_old && self.implementation != 0x0120_0626
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_found_in_both_kinds_of_lists() {
        let both = Features::SVINVAL.with(Features::SVVPTC);
        assert_eq!(Features::parse("rv64imafdcv_zicsr_svinval_Svvptc"), both);
        assert_eq!(Features::parse("i\0m\0svvptc\0svinval\0"), both);
        assert_eq!(
            Features::parse("rv64imac_svinvalx_xsvinval"),
            Features::NONE
        );
        assert!(both.has(Features::SVINVAL) && !Features::SVINVAL.has(both));
        assert_eq!(
            both.both(Features::SVVPTC.with(Features::SVADU)),
            Features::SVVPTC
        );
    }

    #[test]
    fn the_erratum_is_of_old_cores_of_one_vendor() {
        let new = |vendor, architecture, implementation| Processor {
            vendor,
            architecture,
            implementation,
        };
        let bullet = 0x8000_0000_0000_0007;
        assert!(new(SIFIVE, bullet, 0x2018_1004).has_cip_1200());
        assert!(new(SIFIVE, 1, 0x0120_0630).has_cip_1200());
        assert!(!new(SIFIVE, bullet, 0x20_0631).has_cip_1200());
        assert!(!new(SIFIVE, bullet, 0x0120_0626).has_cip_1200());
        assert!(!new(SIFIVE, 2, 0x20_0630).has_cip_1200());
        assert!(!new(0x5b7, bullet, 0x20_0630).has_cip_1200());
    }
}
