//! The two interfaces of a local APIC.

use crate::features::Features;

/// The two interfaces of a local APIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApicMode {
    /// Registers in a page of memory, 8-bit ids.
    XApic,
    /// Registers as MSRs, 32-bit ids.
    X2Apic,
}

impl ApicMode {
    /// x2APIC where the processor has it, else xAPIC.
    pub const fn detect(features: &Features) -> Self {
        if features.has_x2apic() {
            Self::X2Apic
        } else {
            Self::XApic
        }
    }

    /// `xapic` or `x2apic`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XApic => "xapic",
            Self::X2Apic => "x2apic",
        }
    }
}
