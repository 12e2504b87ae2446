//! What the processor can do, from CPUID.
//!
//! Leaves and bits: SDM vol. 2A, "CPUID"; APM vol. 3, "Obtaining Processor Information Via the
//! CPUID Instruction".

use bitflags::bitflags;
use core::arch::x86_64::CpuidResult;

use crate::cpuid::cpuid;
use crate::processor::Processor;

const LEAF_BASIC: u32 = 0;
const LEAF_FEATURES: u32 = 1;
const LEAF_STRUCTURED: u32 = 7;
const LEAF_HYPERVISOR: u32 = 0x4000_0000;
pub(crate) const LEAF_EXTENDED: u32 = 0x8000_0000;
pub(crate) const LEAF_EXTENDED_FEATURES: u32 = 0x8000_0001;
const LEAF_POWER: u32 = 0x8000_0007;
const LEAF_SIZES: u32 = 0x8000_0008;

bitflags! {
    /// Features that matter to address translation, interrupts and kernel entry.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FeatureFlags: u32 {
        /// The local APIC can be used through MSRs.
        const X2APIC = 1 << 0;
        /// Global pages.
        const PGE = 1 << 1;
        /// Process-context identifiers.
        const PCID = 1 << 2;
        /// The INVPCID instruction.
        const INVPCID = 1 << 3;
        /// Supervisor-mode execution prevention.
        const SMEP = 1 << 4;
        /// Supervisor-mode access prevention.
        const SMAP = 1 << 5;
        /// The INVLPGB and TLBSYNC instructions (AMD).
        const INVLPGB = 1 << 6;
        /// The APIC timer takes deadlines in time-stamp counts.
        const TSC_DEADLINE = 1 << 7;
        /// No-execute pages.
        const NX = 1 << 8;
        /// 1 GiB pages.
        const PAGE_1G = 1 << 9;
        /// RDFSBASE and its kin.
        const FSGSBASE = 1 << 10;
        /// The time-stamp counter runs at one rate in all power states.
        const INVARIANT_TSC = 1 << 11;
        /// A hypervisor says that it is there.
        const HYPERVISOR = 1 << 12;
        /// Translation cache extension (AMD): EFER.TCE may be set.
        const TCE = 1 << 13;
    }
}

/// Who provides the machine, by the signature in the hypervisor leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hypervisor {
    /// Bare metal, or a hypervisor that hides.
    None,
    /// QEMU's translator.
    Tcg,
    /// Linux KVM.
    Kvm,
    /// Another one, with its signature.
    Other([u8; 12]),
}

/// The features of the CPU that ran [`Features::detect`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    flags: FeatureFlags,
    processor: Processor,
    hypervisor: Hypervisor,
    invlpgb_max_pages: u32,
}

impl Features {
    /// Asks this CPU. CPUID traps under a hypervisor, so do it once and keep the answer.
    pub fn detect() -> Self {
        Self::from_leaves(cpuid)
    }

    /// The same from any source of leaves: `leaves(leaf, subleaf)`.
    pub fn from_leaves(leaves: impl Fn(u32, u32) -> CpuidResult) -> Self {
        let basic = leaf_in_range(&leaves, LEAF_FEATURES, LEAF_BASIC);
        let sizes = leaf_in_range(&leaves, LEAF_SIZES, LEAF_EXTENDED);
        let flags = FeatureFlags::from_leaves(&leaves, basic, sizes);
        let hypervisor = if flags.contains(FeatureFlags::HYPERVISOR) {
            Hypervisor::from_leaf(leaves(LEAF_HYPERVISOR, 0))
        } else {
            Hypervisor::None
        };
        // The register holds the number of pages beyond the first.
        let invlpgb_max_pages = if flags.contains(FeatureFlags::INVLPGB) {
            (sizes.edx & 0xffff) + 1
        } else {
            0
        };
        Self {
            flags,
            processor: Processor::from_leaves(leaves(LEAF_BASIC, 0), basic.eax),
            hypervisor,
            invlpgb_max_pages,
        }
    }

    /// Exactly these features on bare metal, for tests and simulators.
    pub const fn with_flags(flags: FeatureFlags) -> Self {
        Self {
            flags,
            processor: Processor::UNKNOWN,
            hypervisor: Hypervisor::None,
            invlpgb_max_pages: 0,
        }
    }

    /// The same features on another processor, for tests and simulators.
    pub const fn with_processor(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// Which processor it is.
    pub const fn processor(&self) -> Processor {
        self.processor
    }

    /// All flags at once, for printing.
    pub const fn flags(&self) -> FeatureFlags {
        self.flags
    }

    /// Who provides the machine.
    pub const fn hypervisor(&self) -> Hypervisor {
        self.hypervisor
    }

    /// Most pages that one INVLPGB may name; 0 without INVLPGB.
    pub const fn invlpgb_max_pages(&self) -> u32 {
        self.invlpgb_max_pages
    }
}

impl FeatureFlags {
    fn from_leaves(
        leaves: impl Fn(u32, u32) -> CpuidResult,
        basic: CpuidResult,
        sizes: CpuidResult,
    ) -> Self {
        let structured = leaf_in_range(&leaves, LEAF_STRUCTURED, LEAF_BASIC);
        let extended = leaf_in_range(&leaves, LEAF_EXTENDED_FEATURES, LEAF_EXTENDED);
        let power = leaf_in_range(&leaves, LEAF_POWER, LEAF_EXTENDED);
        let mut flags = FeatureFlags::empty();
        for (flag, register, bit) in [
            (FeatureFlags::PCID, basic.ecx, 17),
            (FeatureFlags::X2APIC, basic.ecx, 21),
            (FeatureFlags::TSC_DEADLINE, basic.ecx, 24),
            (FeatureFlags::HYPERVISOR, basic.ecx, 31),
            (FeatureFlags::PGE, basic.edx, 13),
            (FeatureFlags::FSGSBASE, structured.ebx, 0),
            (FeatureFlags::SMEP, structured.ebx, 7),
            (FeatureFlags::INVPCID, structured.ebx, 10),
            (FeatureFlags::SMAP, structured.ebx, 20),
            (FeatureFlags::TCE, extended.ecx, 17),
            (FeatureFlags::NX, extended.edx, 20),
            (FeatureFlags::PAGE_1G, extended.edx, 26),
            (FeatureFlags::INVARIANT_TSC, power.edx, 8),
            (FeatureFlags::INVLPGB, sizes.ebx, 3),
        ] {
            flags.set(flag, register >> bit & 1 != 0);
        }
        flags
    }
}

/// A leaf of the range that begins at `base`; zeros where it has none. Intel processors answer a leaf
/// beyond the maximum with another leaf's data.
pub(crate) fn leaf_in_range(
    leaves: impl Fn(u32, u32) -> CpuidResult,
    number: u32,
    base: u32,
) -> CpuidResult {
    if leaves(base, 0).eax >= number {
        leaves(number, 0)
    } else {
        CpuidResult {
            eax: 0,
            ebx: 0,
            ecx: 0,
            edx: 0,
        }
    }
}

/// One accessor per flag.
macro_rules! accessors {
    ($($name:ident => $flag:ident),* $(,)?) => {
        impl Features {
            $(
                #[doc = concat!("Whether [`FeatureFlags::", stringify!($flag), "`] is there.")]
                pub const fn $name(&self) -> bool {
                    self.flags.contains(FeatureFlags::$flag)
                }
            )*
        }
    };
}

accessors! {
    has_x2apic => X2APIC,
    has_pge => PGE,
    has_pcid => PCID,
    has_invpcid => INVPCID,
    has_smep => SMEP,
    has_smap => SMAP,
    has_invlpgb => INVLPGB,
    has_tsc_deadline => TSC_DEADLINE,
    has_nx => NX,
    has_page_1g => PAGE_1G,
    has_fsgsbase => FSGSBASE,
    has_invariant_tsc => INVARIANT_TSC,
    has_tce => TCE,
}

impl Hypervisor {
    fn from_leaf(leaf: CpuidResult) -> Self {
        let mut signature = [0; 12];
        signature[0..4].copy_from_slice(&leaf.ebx.to_le_bytes());
        signature[4..8].copy_from_slice(&leaf.ecx.to_le_bytes());
        signature[8..12].copy_from_slice(&leaf.edx.to_le_bytes());
        match &signature {
            b"TCGTCGTCGTCG" => Self::Tcg,
            b"KVMKVMKVM\0\0\0" => Self::Kvm,
            _ => Self::Other(signature),
        }
    }
}
