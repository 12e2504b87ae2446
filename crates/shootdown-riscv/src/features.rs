//! What harts have, and which ones they are.
//!
//! Supervisor mode has no register that lists extensions: the device tree (`riscv,isa`, `riscv,isa-extensions`) or ACPI's RHCT does, and the host hands
//! the names on. Which processor it is, SBI says. All values here are for one hart; a host with different ones takes what [all of them have](Features::both).

use crate::ipi::{self, Extension, SbiError};

/// Extensions that matter to flushes and interrupts. [`SVINVAL`](Self::SVINVAL) and [`SVADU`](Self::SVADU) change what a [`Tlb`](crate::Tlb) does. The others are
/// advice to the host, and change nothing here.
///
/// Svnapot is not among them: pages below 2 MiB are [flushed](crate::Tlb::flush_pages) 4 KiB by 4 KiB with or without it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features(u8);

impl Features {
    /// None of them: nothing is used that the base architecture does not have.
    pub const NONE: Self = Self(0);
    /// Fences in three parts, of which the middle one may be repeated (Privileged, "Svinval").
    pub const SVINVAL: Self = Self(1 << 0);
    /// The walker sets A and D by itself (Privileged, "Svadu"), **and that is turned on**: so no page fault is about them, and the [retry](crate::Tlb::retry) does not ask for them.
    /// Entries change under the host: it changes them by atomic operations, and looks at D after the flush that takes the right to write.
    ///
    /// Without it a page whose A is clear, or that is written while D is clear, may fault ("Svade"). The handler sets the bit, which is a gained right: it may be
    /// flushed by the retry. To *clear* A or D takes a flush before it is relied on, with it or without.
    pub const SVADU: Self = Self(1 << 1);
    /// Advice: what becomes valid is visible in bounded time (Privileged, "Svvptc"). So user pages that become present need neither a flush nor, beyond a few spurious
    /// faults, a [retry that fences](crate::Tlb::retry). Without it an invalid entry may stay cached for ever. It says nothing of entries that were valid.
    pub const SVVPTC: Self = Self(1 << 2);
    /// Advice: the IMSIC's and interrupts' registers of supervisor mode are there (Advanced Interrupt Architecture, "Ssaia"), which [`Ipi::claim`](crate::Ipi::claim) takes.
    pub const SSAIA: Self = Self(1 << 3);

    const NAMES: [(&'static str, Self); 4] = [
        ("svinval", Self::SVINVAL),
        ("svadu", Self::SVADU),
        ("svvptc", Self::SVVPTC),
        ("ssaia", Self::SSAIA),
    ];

    /// The features in a list of extensions: the string `riscv,isa` (`rv64imafdc_svinval_..`), or the strings of `riscv,isa-extensions` as they lie in the tree,
    /// each with a zero behind it. Case does not matter; names that mean nothing here are passed over.
    ///
    /// [`SVADU`](Self::SVADU) is left out where Svade is listed, too: then it is turned off at boot (Linux: `extensions.yaml` of the device tree's bindings, `svade`). A host that turns
    /// it on, by SBI's extension FWFT, adds it.
    pub fn parse(list: &str) -> Self {
        let has = |wanted: &str| {
            let mut names = list.split(['_', '\0', ',', ' ']);
            names.any(|name| name.eq_ignore_ascii_case(wanted))
        };
        let is_off = |feature| feature == Self::SVADU && has("svade");
        let known = Self::NAMES.into_iter();
        let found = known.filter(|&(name, feature)| has(name) && !is_off(feature));
        found.fold(Self::NONE, |sum, (_, feature)| sum.with(feature))
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
        assert_eq!(Features::parse("rv64imac_svadu"), Features::SVADU);
        assert_eq!(Features::parse("svadu\0svade\0"), Features::NONE);
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
