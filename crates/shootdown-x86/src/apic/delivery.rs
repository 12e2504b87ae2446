//! How sets of CPUs are addressed.
//!
//! SDM vol. 3A, "Determining IPI Destination" (xAPIC: physical, flat logical; the cluster model of
//! xAPIC needs hardware that few machines have and is not used here) and "Logical Destination Mode
//! in x2APIC Mode".

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

impl Delivery {
    /// The one that needs the fewest commands for a machine of `cpus` CPUs.
    pub const fn choose(mode: ApicMode, cpus: usize) -> Self {
        match mode {
            ApicMode::X2Apic => Self::X2Cluster,
            ApicMode::XApic if cpus <= FLAT_CPUS => Self::XapicFlat,
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
