//! Whether a processor's PCIDs can be used.

use crate::features::{Features, Hypervisor};
use crate::processor::{Microcode, Processor, Vendor};

/// A processor model on which, with PCIDs on, INVLPG may leave global translations of the page
/// behind, and the microcode from which on it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvlpgMiss {
    /// Intel, family 6, this model.
    model: u8,
    fixed_in: Microcode,
}

/// Intel's "INVLPG may not flush global entries when PCIDs are enabled": errata ADL063 (12th generation,
/// document 682436) and RPL042 (13th, document 740518). Models as in Linux commit ce0b15d11ad8
/// ("x86/mm: Avoid incomplete Global INVLPG flushes", 2023), the revisions that repair them as in
/// f24f669d03f8 ("x86/mm: Don't disable PCID when INVLPG has been fixed by microcode", 2024).
const INVLPG_MISSES: [InvlpgMiss; 6] = [
    InvlpgMiss::of(0x97, 0x2e),   // Alder Lake
    InvlpgMiss::of(0x9a, 0x42c),  // Alder Lake L
    InvlpgMiss::of(0xbe, 0x11),   // Gracemont (Alder Lake N)
    InvlpgMiss::of(0xb7, 0x118),  // Raptor Lake
    InvlpgMiss::of(0xba, 0x4117), // Raptor Lake P
    InvlpgMiss::of(0xbf, 0x2e),   // Raptor Lake S
];

impl InvlpgMiss {
    const fn of(model: u8, fixed_in: u32) -> Self {
        Self {
            model,
            fixed_in: Microcode(fixed_in),
        }
    }

    /// The erratum of this processor, if it has one without new microcode.
    pub fn of_processor(processor: Processor) -> Option<Self> {
        let (Vendor::Intel, 6) = (processor.vendor, processor.family) else {
            return None;
        };
        INVLPG_MISSES
            .into_iter()
            .find(|miss| miss.model == processor.model)
    }

    /// The first revision without it.
    pub const fn fixed_in(self) -> Microcode {
        self.fixed_in
    }
}

/// Whether CR4.PCIDE may be set, and if not, why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PcidSupport {
    /// Yes.
    Usable,
    /// The processor has none.
    Absent,
    /// There is neither INVPCID nor CR4.PGE, and nothing else drops all tags at once. No known
    /// processor is like that; a hypervisor can be told to make one up.
    NoFlushAll,
    /// INVLPG would miss global translations ([`InvlpgMiss`]).
    InvlpgMisses(InvlpgMiss),
}

impl PcidSupport {
    /// Judges by the features and, where the model asks for it, by what `microcode` reads. A
    /// hypervisor's answer to that is not believed, and it is not asked.
    pub fn judge(features: &Features, microcode: impl FnOnce() -> Microcode) -> Self {
        if !features.has_pcid() {
            return Self::Absent;
        }
        if !features.has_invpcid() && !features.has_pge() {
            return Self::NoFlushAll;
        }
        match InvlpgMiss::of_processor(features.processor()) {
            None => Self::Usable,
            Some(miss) => {
                let bare = features.hypervisor() == Hypervisor::None;
                if bare && microcode() >= miss.fixed_in {
                    Self::Usable
                } else {
                    Self::InvlpgMisses(miss)
                }
            }
        }
    }

    /// [`PcidSupport::judge`] for this CPU.
    ///
    /// # Safety
    ///
    /// 1. CPL 0.
    /// 2. `features` are this CPU's.
    pub unsafe fn detect(features: &Features) -> Self {
        // SAFETY: 1. the caller's. 2. asked only of models on the list, which are Intel's.
        Self::judge(features, || unsafe { Microcode::read() })
    }

    /// Whether it is [`PcidSupport::Usable`].
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Usable)
    }
}
