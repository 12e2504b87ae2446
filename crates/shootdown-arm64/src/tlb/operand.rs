//! What a TLBI names, and how its register says so (DDI 0487, C5.5: "TLBI VAE1", "TLBI RVAE1" and so on).

/// A tag of translations: an address space identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asid(u16);

impl Asid {
    /// Tag 0, for roots without a tag of their own.
    pub const UNTAGGED: Self = Self(0);

    /// Tag `number`. It has to be below `1 <<` [`AsidBits::count`].
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    /// In bits 63:48, as TTBR0_EL1 and all operands have it.
    pub(super) const fn bits(self) -> u64 {
        (self.0 as u64) << 48
    }

    pub(super) const fn of_bits(register: u64) -> Self {
        Self((register >> 48) as u16)
    }
}

/// How wide ASIDs are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AsidBits {
    /// 256 of them.
    Eight,
    /// 65536 of them.
    Sixteen,
}

impl AsidBits {
    /// The number of bits.
    pub const fn count(self) -> u32 {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
        }
    }
}

/// The size of the smallest pages, TCR_EL1.TG0; this crate takes TG1 for the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granule {
    /// 4 KiB.
    Kib4,
    /// 16 KiB.
    Kib16,
    /// 64 KiB.
    Kib64,
}

impl Granule {
    const fn shift(self) -> u32 {
        match self {
            Self::Kib4 => 12,
            Self::Kib16 => 14,
            Self::Kib64 => 16,
        }
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        1 << self.shift()
    }

    /// The TG field of an operand: 0 is reserved, and the order is not that of TCR_EL1.TG0.
    const fn code(self) -> u64 {
        match self {
            Self::Kib4 => 1,
            Self::Kib16 => 2,
            Self::Kib64 => 3,
        }
    }
}

/// What goes together with translations of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// Nothing: entries of the last level only. Enough where no table was freed.
    Leaf,
    /// Entries of all levels that lead to the pages.
    Tables,
}

/// What becomes of the entries of a tag when a root is loaded under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagEntries {
    /// They may be used.
    Keep,
    /// They are dropped.
    Drop,
}

/// Which CPUs carry out a TLBI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// This one.
    Own,
    /// All of the inner shareable domain.
    Inner,
}

/// `2^(5 * scale + 1) * (number + 1)` pages (FEAT_TLBIRANGE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    pub(super) start: usize,
    pub(super) granule: Granule,
    pub(super) scale: u8,
    pub(super) number: u8,
}

impl PageRange {
    /// The first address.
    pub const fn start(&self) -> usize {
        self.start
    }

    /// How many pages of the granule.
    pub const fn pages(&self) -> usize {
        (self.number as usize + 1) << (5 * self.scale + 1)
    }

    /// BaseADDR in bits 36:0, in pages of the granule (TCR_EL1.DS is 0, else it would be in units of 64 KiB); NUM in 43:39, SCALE in 45:44, TG in 47:46. TTL is 0: any level.
    const fn bits(&self) -> u64 {
        let base = (self.start as u64 >> self.granule.shift()) & ((1 << 37) - 1);
        base | (self.number as u64) << 39 | (self.scale as u64) << 44 | self.granule.code() << 46
    }
}

/// One TLB invalidation of stage 1, EL1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tlbi {
    /// VMALLE1: everything.
    All,
    /// ASIDE1: all that is not global under the tag, of all levels.
    Tag(Asid),
    /// VAAE1 and VAALE1: a page under all tags, global or not. VAE1 and VALE1 with a tag: under that one, or global.
    Page(Option<Asid>, usize, Depth),
    /// The same for a range: RVAAE1, RVAALE1, RVAE1, RVALE1.
    Range(Option<Asid>, PageRange, Depth),
}

impl Tlbi {
    /// The register. An address is in bits 43:0, in units of 4 KiB whatever the granule; TTL in 47:44 is 0: any level.
    pub const fn operand(&self) -> u64 {
        let (tag, bits) = match self {
            Self::All => return 0,
            Self::Tag(tag) => return tag.bits(),
            Self::Page(tag, address, _) => (tag, (*address as u64 >> 12) & ((1 << 44) - 1)),
            Self::Range(tag, range, _) => (tag, range.bits()),
        };
        match tag {
            Some(tag) => bits | tag.bits(),
            None => bits,
        }
    }
}
