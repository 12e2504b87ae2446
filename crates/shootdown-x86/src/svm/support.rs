//! What the processor has of SVM, from CPUID.

use bitflags::bitflags;
use core::arch::x86_64::CpuidResult;
use core::error::Error;
use core::fmt;

use crate::cpuid::cpuid;
use crate::features::{LEAF_EXTENDED, LEAF_EXTENDED_FEATURES, leaf_in_range};

const LEAF_SVM: u32 = 0x8000_000a;
/// In ECX of the extended features.
const HAS_SVM: u32 = 1 << 2;

bitflags! {
    /// EDX of leaf 8000_000A (APM vol. 3, "SVM Features"): the bits that this crate has a name for, and all others.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SvmFlags: u32 {
        /// Nested paging.
        const NESTED_PAGING = 1 << 0;
        /// The address of the next instruction is in the VMCB.
        const NEXT_RIP = 1 << 3;
        /// VMRUN keeps what clean bits cover.
        const VMCB_CLEAN = 1 << 5;
        /// VMRUN can drop a single ASID.
        const FLUSH_BY_ASID = 1 << 6;
        /// The bytes of an instruction that exits are in the VMCB.
        const DECODE_ASSISTS = 1 << 7;
        const _ = !0;
    }
}

/// SVM as the CPU has it that ran [`Svm::detect`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Svm {
    /// The revision.
    pub revision: u8,
    /// How many ASIDs there are, the host's too.
    pub asids: u32,
    /// Its parts.
    pub flags: SvmFlags,
}

/// Why guests cannot be run on nested page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SvmLacks {
    /// There is no nested paging.
    NestedPaging,
    /// There is no ASID but the host's.
    Asids,
}

impl Svm {
    /// Asks this CPU; `None` if it has no SVM. Firmware may have switched it off ([`VM_CR_SVMDIS`](super::VM_CR_SVMDIS)).
    pub fn detect() -> Option<Self> {
        Self::from_leaves(cpuid)
    }

    /// The same from any source of leaves: `leaves(leaf, subleaf)`.
    pub fn from_leaves(leaves: impl Fn(u32, u32) -> CpuidResult) -> Option<Self> {
        let extended = leaf_in_range(&leaves, LEAF_EXTENDED_FEATURES, LEAF_EXTENDED);
        if extended.ecx & HAS_SVM == 0 {
            return None;
        }
        let svm = leaf_in_range(&leaves, LEAF_SVM, LEAF_EXTENDED);
        Some(Self {
            revision: svm.eax as u8,
            asids: svm.ebx,
            flags: SvmFlags::from_bits_retain(svm.edx),
        })
    }

    /// Whether VMRUN can drop a single ASID.
    pub const fn has_flush_by_asid(&self) -> bool {
        self.flags.contains(SvmFlags::FLUSH_BY_ASID)
    }
}

impl fmt::Display for SvmLacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NestedPaging => "the processor has no nested paging",
            Self::Asids => "the processor has no ASID for guests",
        })
    }
}

impl Error for SvmLacks {}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf([eax, ebx, ecx, edx]: [u32; 4]) -> CpuidResult {
        CpuidResult { eax, ebx, ecx, edx }
    }

    fn of(highest: u32, features: u32) -> Option<Svm> {
        Svm::from_leaves(|number, _| match number {
            LEAF_EXTENDED => leaf([highest, 0, 0, 0]),
            LEAF_EXTENDED_FEATURES => leaf([0, 0, features, 0]),
            // Revision 1, 16 ASIDs, nested paging and decode assists, and a bit without a name.
            LEAF_SVM => leaf([0x1_0001, 16, 0, 0x1_0081]),
            _ => panic!("{number:#x} is not asked for"),
        })
    }

    #[test]
    fn svm_is_what_its_leaf_says_where_there_is_one() {
        let svm = of(0x8000_001f, HAS_SVM).unwrap();
        assert_eq!((svm.revision, svm.asids), (1, 16));
        assert_eq!(svm.flags.bits(), 0x1_0081);
        assert!(
            svm.flags
                .contains(SvmFlags::NESTED_PAGING | SvmFlags::DECODE_ASSISTS)
        );
        assert!(!svm.has_flush_by_asid());
        assert_eq!(of(0x8000_001f, !HAS_SVM), None);
        assert_eq!(of(LEAF_EXTENDED, HAS_SVM), None);
        assert_eq!(of(0x8000_0008, HAS_SVM).unwrap().asids, 0);
    }
}
