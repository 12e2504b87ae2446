//! Process-context identifiers: the tags that keep translations apart.
//!
//! SDM vol. 3A, "Process-Context Identifiers (PCIDs)": with CR4.PCIDE set, CR3 bits 11:0 name the
//! loaded tag, and a CR3 write with bit 63 set drops nothing.

/// PCIDs have 12 bits.
const LIMIT: u16 = 1 << 12;
/// CR3's bits for the PCID; without PCIDs two of them say how the root itself is cached.
pub(super) const CR3_PCID: u64 = LIMIT as u64 - 1;
/// CR3 bit 63 of a write: keep what the tag has cached. Never read back.
const CR3_KEEP: u64 = 1 << 63;

/// A process-context identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pcid(u16);

impl Pcid {
    /// For roots without a tag of their own. It is also the tag of everything that was cached while
    /// CR4.PCIDE was clear.
    pub const UNTAGGED: Self = Self(0);
    /// How many there are besides [`Pcid::UNTAGGED`].
    pub const TAGS: usize = LIMIT as usize - 1;

    /// The identifier, if it fits 12 bits.
    pub const fn new(pcid: u16) -> Option<Self> {
        if pcid < LIMIT { Some(Self(pcid)) } else { None }
    }

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    /// The tag in a CR3 that was read with CR4.PCIDE set.
    pub(super) const fn of_cr3(cr3: u64) -> Self {
        Self((cr3 & CR3_PCID) as u16)
    }

    /// What to write to CR3, with CR4.PCIDE set, for a root at a page boundary.
    pub(super) const fn to_cr3(self, root: u64, entries: TagEntries) -> u64 {
        let keep = match entries {
            TagEntries::Keep => CR3_KEEP,
            TagEntries::Drop => 0,
        };
        root | self.0 as u64 | keep
    }
}

/// What happens, as a root is loaded, to what its tag has cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TagEntries {
    /// It may be used.
    Keep,
    /// It is dropped, paging-structure caches included; global translations stay.
    Drop,
}

/// Two tags of one space for kernels that unmap themselves from user mode (page-table isolation):
/// one for the root with the kernel, one for the root without. They differ in the top bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PcidPair {
    kernel: Pcid,
}

impl PcidPair {
    const USER: u16 = LIMIT >> 1;
    /// How many pairs there are besides that of [`Pcid::UNTAGGED`].
    pub const PAIRS: usize = Self::USER as usize - 1;

    /// The pair whose kernel side is `kernel`, if its top bit is clear.
    pub const fn new(kernel: Pcid) -> Option<Self> {
        if kernel.0 & Self::USER == 0 {
            Some(Self { kernel })
        } else {
            None
        }
    }

    /// The tag of the root with the kernel.
    pub const fn kernel(self) -> Pcid {
        self.kernel
    }

    /// The tag of the root without.
    pub const fn user(self) -> Pcid {
        Pcid(self.kernel.0 | Self::USER)
    }
}

/// What became of the user side of a [`PcidPair`] when the kernel side was flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "owed entries must be dropped before user mode runs"]
pub enum UserSide {
    /// Dropped as well.
    Dropped,
    /// Still cached: this processor reaches the loaded tag only. The next load of the user side's
    /// root, before user mode, must be with [`TagEntries::Drop`].
    Owed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcids_have_twelve_bits() {
        assert_eq!(Pcid::new(0xfff).map(Pcid::as_u16), Some(0xfff));
        assert_eq!(Pcid::new(0x1000), None);
        assert_eq!(Pcid::TAGS, 0xfff);
    }

    #[test]
    fn cr3_has_the_tag_below_the_root_and_keep_on_top() {
        let pcid = Pcid::new(0xabc).unwrap();
        assert_eq!(pcid.to_cr3(0x1234_5000, TagEntries::Drop), 0x1234_5abc);
        let keep = pcid.to_cr3(0x1234_5000, TagEntries::Keep);
        assert_eq!(keep, 0x8000_0000_1234_5abc);
        assert_eq!(Pcid::of_cr3(0x1234_5abc), pcid);
    }

    #[test]
    fn pairs_differ_in_the_top_bit_only() {
        let pair = PcidPair::new(Pcid(0x7ff)).unwrap();
        assert_eq!((pair.kernel(), pair.user()), (Pcid(0x7ff), Pcid(0xfff)));
        assert_eq!(PcidPair::new(Pcid(0x800)), None);
        assert_eq!(PcidPair::PAIRS, 0x7ff);
    }
}
