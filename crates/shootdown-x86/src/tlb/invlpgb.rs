//! INVLPGB: what it drops, as it takes it (APM vol. 3, "INVLPGB").

use super::pcid::Pcid;

/// How far the pages of one INVLPGB are apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stride {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Large,
}

impl Stride {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Small => 1 << 12,
            Self::Large => 1 << 21,
        }
    }
}

/// Which cached entries go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Depth {
    /// The pages' translations only: no page table was unlinked.
    Leaf,
    /// The entries of page tables, too, whatever they lead to: tables are freed.
    Tables,
}

/// What one INVLPGB drops, of the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InvlpgbKind {
    /// Pages of one PCID, not global translations: the first address, so many pages (at least one, at most
    /// [`Features::invlpgb_max_pages`](crate::Features::invlpgb_max_pages)), so far apart.
    Pages(Pcid, usize, u32, Stride, Depth),
    /// Pages of every PCID, and global translations.
    PagesOfAll(usize, u32, Stride, Depth),
    /// One PCID, not global translations.
    Context(Pcid),
    /// Every PCID, not global translations.
    AllNonGlobal,
    /// Every PCID, and global translations.
    All,
}

/// The operands of an INVLPGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvlpgbOperands {
    /// RAX: bits 63:12 the address, below it what is valid and what is meant.
    pub rax: u64,
    /// ECX: bits 15:0 the pages beyond the first, bit 31 the stride.
    pub ecx: u32,
    /// EDX: bits 15:0 the ASID, 27:16 the PCID.
    pub edx: u32,
}

impl InvlpgbKind {
    const HAS_ADDRESS: u64 = 1 << 0;
    const HAS_PCID: u64 = 1 << 1;
    const HAS_ASID: u64 = 1 << 2;
    const WITH_GLOBAL: u64 = 1 << 3;
    const LEAF_ONLY: u64 = 1 << 4;
    const PAGE_MASK: u64 = !0xfff;
    const LARGE: u32 = 1 << 31;

    /// As the instruction takes it.
    pub const fn encode(self) -> InvlpgbOperands {
        let (mut rax, mut ecx, mut edx) = (Self::HAS_ASID, 0, 0);
        if let Self::Pages(_, address, pages, stride, depth)
        | Self::PagesOfAll(address, pages, stride, depth) = self
        {
            rax |= Self::HAS_ADDRESS | address as u64 & Self::PAGE_MASK;
            ecx = pages - 1;
            if let Stride::Large = stride {
                ecx |= Self::LARGE;
            }
            if let Depth::Leaf = depth {
                rax |= Self::LEAF_ONLY;
            }
        }
        match self {
            Self::Pages(pcid, ..) | Self::Context(pcid) => {
                rax |= Self::HAS_PCID;
                edx = (pcid.as_u16() as u32) << 16;
            }
            Self::PagesOfAll(..) | Self::All => rax |= Self::WITH_GLOBAL,
            Self::AllNonGlobal => {}
        }
        InvlpgbOperands { rax, ecx, edx }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_the_manuals() {
        let pcid = Pcid::new(0xabc).unwrap();
        let encoded = |kind: InvlpgbKind| {
            let InvlpgbOperands { rax, ecx, edx } = kind.encode();
            (rax, ecx, edx)
        };
        for (kind, operands) in [
            (
                InvlpgbKind::Pages(pcid, 0x7123, 3, Stride::Small, Depth::Leaf),
                (0x7017, 2, 0xabc_0000),
            ),
            (
                InvlpgbKind::Pages(pcid, 0x20_0000, 1, Stride::Large, Depth::Tables),
                (0x20_0007, 1 << 31, 0xabc_0000),
            ),
            (
                InvlpgbKind::PagesOfAll(0x7000, 1, Stride::Small, Depth::Leaf),
                (0x701d, 0, 0),
            ),
            (InvlpgbKind::Context(pcid), (0b110, 0, 0xabc_0000)),
            (InvlpgbKind::AllNonGlobal, (0b100, 0, 0)),
            (InvlpgbKind::All, (0b1100, 0, 0)),
        ] {
            assert_eq!(encoded(kind), operands, "{kind:?}");
        }
    }
}
