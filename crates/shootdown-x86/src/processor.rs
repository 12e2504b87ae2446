//! Which processor this is: vendor, family, model, stepping, and the revision of its microcode.
//!
//! Only for what CPUID's feature bits do not say: the errata of particular models.

use core::arch::x86_64::CpuidResult;

use crate::cpuid::cpuid;
use crate::msr::{self, Msr};

/// Family 6 and families from this on extend the model number (SDM vol. 2A, "CPUID").
const EXTENDED_FAMILY: u16 = 0xf;

/// Who made the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// "GenuineIntel".
    Intel,
    /// "AuthenticAMD".
    Amd,
    /// Another one.
    Other,
}

/// A processor's signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor {
    /// Who made it.
    pub vendor: Vendor,
    /// Family, the extended one added.
    pub family: u16,
    /// Model, the extended one in its upper half.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

impl Processor {
    /// Nothing known.
    pub const UNKNOWN: Self = Self {
        vendor: Vendor::Other,
        family: 0,
        model: 0,
        stepping: 0,
    };

    /// From leaf 0, which names the vendor, and EAX of leaf 1 (SDM vol. 2A, "CPUID").
    pub(crate) fn from_leaves(vendor: CpuidResult, signature: u32) -> Self {
        let field = |from: u32, bits: u32| signature >> from & ((1 << bits) - 1);
        let base = field(8, 4) as u16;
        let family = match base {
            EXTENDED_FAMILY => base + field(20, 8) as u16,
            _ => base,
        };
        let model = match base {
            6 | EXTENDED_FAMILY => field(16, 4) << 4 | field(4, 4),
            _ => field(4, 4),
        };
        Self {
            vendor: Vendor::from_leaf(vendor),
            family,
            model: model as u8,
            stepping: field(0, 4) as u8,
        }
    }
}

impl Vendor {
    fn from_leaf(leaf: CpuidResult) -> Self {
        let mut name = [0; 12];
        name[0..4].copy_from_slice(&leaf.ebx.to_le_bytes());
        name[4..8].copy_from_slice(&leaf.edx.to_le_bytes());
        name[8..12].copy_from_slice(&leaf.ecx.to_le_bytes());
        match &name {
            b"GenuineIntel" => Self::Intel,
            b"AuthenticAMD" => Self::Amd,
            _ => Self::Other,
        }
    }
}

/// The revision of the microcode that a processor runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Microcode(pub u32);

impl Microcode {
    /// Asks this Intel processor (SDM vol. 3A, "Determining the Signature": clear the register, run
    /// CPUID, read its upper half). Hypervisors may answer what they like.
    ///
    /// # Safety
    ///
    /// 1. CPL 0.
    /// 2. An Intel processor of family 6 or later.
    pub unsafe fn read() -> Self {
        // SAFETY: 1. the caller's. 2. every Intel processor with microcode updates has it. 3. it
        // only makes room for the answer.
        unsafe { msr::write(Msr::BIOS_SIGN_ID, 0) };
        let _ = cpuid(1, 0);
        // SAFETY: as above; reading has no effect.
        let value = unsafe { msr::read(Msr::BIOS_SIGN_ID) };
        Self((value >> 32) as u32)
    }
}
