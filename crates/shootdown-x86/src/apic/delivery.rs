//! How sets of CPUs are addressed.
//!
//! SDM vol. 3A, "Determining IPI Destination" (xAPIC: physical, flat logical; the cluster model of
//! xAPIC needs hardware that few machines have and is not used here) and "Logical Destination Mode
//! in x2APIC Mode".

use bitflags::bitflags;

use super::icr::FLAT_CPUS;
use super::mode::ApicMode;

/// xAPIC ids end below this broadcast address.
const XAPIC_BROADCAST: u32 = 0xff;
const X2APIC_BROADCAST: u32 = 0xffff_ffff;

/// How sets of CPUs are addressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Delivery {
    /// xAPIC, one command for each CPU.
    XapicPhysical,
    /// xAPIC, one command for any set of up to 8 CPUs. Each CPU passes its
    /// [`ApicMap::flat_id`](super::ApicMap::flat_id) to
    /// [`LocalApic::enable`](super::LocalApic::enable).
    XapicFlat,
    /// x2APIC, one command for each CPU.
    X2Physical,
    /// x2APIC, one command for each cluster of 16 consecutive ids.
    X2Cluster,
}

bitflags! {
    /// What the firmware says of destinations, at offset 112 of its FADT, 4 bytes (ACPI 6.5, "Fixed ACPI Description Table Fixed
    /// Feature Flags"): the bits that matter here, and all others.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FadtFlags: u32 {
        /// `FORCE_APIC_CLUSTER_MODEL`: logical destinations of xAPIC must be of the cluster model, however few CPUs there are.
        const FORCE_CLUSTER = 1 << 18;
        /// `FORCE_APIC_PHYSICAL_DESTINATION_MODE`: nobody knows what becomes of an interrupt with a logical destination.
        const FORCE_PHYSICAL = 1 << 19;
        const _ = !0;
    }
}

impl Delivery {
    /// The one that needs the fewest commands for a machine of `cpus` CPUs whose firmware has these flags; interrupts can be lost
    /// where they are ignored. Without ACPI they are empty. Flags that the specification has a machine ignore (forced physical
    /// destinations with x2APIC, or with fewer than 8 CPUs) are obeyed: physical destinations always arrive, and Linux obeys them, too
    /// (`arch/x86/kernel/apic/x2apic_phys.c`).
    pub const fn choose(mode: ApicMode, cpus: usize, firmware: FadtFlags) -> Self {
        let physical = firmware.contains(FadtFlags::FORCE_PHYSICAL);
        let flat = cpus <= FLAT_CPUS && !physical && !firmware.contains(FadtFlags::FORCE_CLUSTER);
        match mode {
            ApicMode::X2Apic if physical => Self::X2Physical,
            ApicMode::X2Apic => Self::X2Cluster,
            ApicMode::XApic if flat => Self::XapicFlat,
            ApicMode::XApic => Self::XapicPhysical,
        }
    }

    /// Whether the destinations mean the same CPUs in this mode. Physical ids of 8 bits are valid in both.
    pub(super) const fn fits(self, mode: ApicMode) -> bool {
        match self {
            Self::XapicPhysical => true,
            Self::XapicFlat => matches!(mode, ApicMode::XApic),
            Self::X2Physical | Self::X2Cluster => matches!(mode, ApicMode::X2Apic),
        }
    }

    pub(super) const fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::XapicFlat,
            2 => Self::X2Physical,
            3 => Self::X2Cluster,
            _ => Self::XapicPhysical,
        }
    }

    /// The first id that names no single CPU.
    pub(super) const fn broadcast(self) -> u32 {
        match self {
            Self::XapicPhysical | Self::XapicFlat => XAPIC_BROADCAST,
            Self::X2Physical | Self::X2Cluster => X2APIC_BROADCAST,
        }
    }
}
