//! INVPCID: invalidation by process-context identifier.
//!
//! SDM vol. 2A, "INVPCID": a type in a register, a 16-byte descriptor in memory. With CR4.PCIDE
//! clear, types 0 and 1 fault unless the PCID is 0; types 2 and 3 work all the same.

use super::pcid::Pcid;

/// What one INVPCID drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvpcidKind {
    /// Type 0: one page of one PCID, not global translations. Unlike
    /// INVLPG it leaves cached tables alone that do not lead to the page.
    Page(Pcid, usize),
    /// Type 1: one PCID, not global translations.
    Context(Pcid),
    /// Type 2: everything, all PCIDs, global translations too.
    All,
    /// Type 3: all PCIDs, not global translations.
    AllNonGlobal,
}

/// The operand in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(16))]
pub(super) struct Descriptor {
    pcid: u64,
    address: u64,
}

impl InvpcidKind {
    pub(super) const fn encode(self) -> (u64, Descriptor) {
        let (number, pcid, address) = match self {
            Self::Page(pcid, address) => (0, pcid.as_u16() as u64, address as u64),
            Self::Context(pcid) => (1, pcid.as_u16() as u64, 0),
            Self::All => (2, 0, 0),
            Self::AllNonGlobal => (3, 0, 0),
        };
        (number, Descriptor { pcid, address })
    }

    /// The PCID that it names.
    pub(super) const fn pcid(self) -> Option<Pcid> {
        match self {
            Self::Page(pcid, _) | Self::Context(pcid) => Some(pcid),
            Self::All | Self::AllNonGlobal => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_the_manuals() {
        let pcid = Pcid::new(0xabc).unwrap();
        let encoded = |kind: InvpcidKind| {
            let (number, descriptor) = kind.encode();
            (number, descriptor.pcid, descriptor.address)
        };
        assert_eq!(encoded(InvpcidKind::Page(pcid, 0x7000)), (0, 0xabc, 0x7000));
        assert_eq!(encoded(InvpcidKind::Context(pcid)), (1, 0xabc, 0));
        assert_eq!(encoded(InvpcidKind::All), (2, 0, 0));
        assert_eq!(encoded(InvpcidKind::AllNonGlobal), (3, 0, 0));
    }

    #[test]
    fn descriptor_is_sixteen_bytes_with_the_address_last() {
        assert_eq!(size_of::<Descriptor>(), 16);
        assert_eq!(core::mem::offset_of!(Descriptor, address), 8);
    }
}
