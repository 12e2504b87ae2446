//! Tags: numbers that keep apart what a CPU has cached of several spaces.

/// A number for CSR.ASID (reference manual vol. 1, 7.5.4 "Address Space Identifier"): 10 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asid(u16);

/// CSR.ASID.ASID.
const NUMBER: u32 = 0x3ff;

impl Asid {
    /// The tag of all that is loaded without one.
    pub const UNTAGGED: Self = Self(0);

    /// All bits that the register can have.
    pub(super) const ONES: Self = Self(0x3ff);

    /// A tag by its number; None for more than 10 bits.
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::ONES.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    /// The tag in a value of CSR.ASID.
    pub const fn of_register(value: u32) -> Self {
        // Below 2^10 by the mask.
        Self((value & NUMBER) as u16)
    }
}

/// What happens to what a tag has cached when it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TagEntries {
    /// It is true of the root, and stays.
    Keep,
    /// It goes, all that is not global.
    Drop,
}

/// How many bits of CSR.ASID a processor keeps, 0 to 10.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AsidWidth(u32);

impl AsidWidth {
    /// No tags.
    pub const NONE: Self = Self(0);

    /// So many bits; more than 10 are 10, which the register has room for.
    pub const fn new(bits: u32) -> Self {
        Self(if bits < 10 { bits } else { 10 })
    }

    /// The smaller of what CSR.ASID says of itself in ASIDBITS (bits 23:16), and the bits from bit 0 on that stayed set in `read_back` when all were written.
    pub(super) const fn of_registers(said: u32, read_back: u32) -> Self {
        let said = Self::new(said >> 16 & 0xff);
        let kept = Self::new((read_back & NUMBER).trailing_ones());
        if said.0 < kept.0 { said } else { kept }
    }

    /// The number of bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The tag that [`Tlb`](super::Tlb) loads between a root and the next, and that no space may have: the highest. None without tags.
    pub const fn reserved(self) -> Option<Asid> {
        match self.0 {
            0 => None,
            bits => Some(Asid((1 << bits) - 1)),
        }
    }

    /// How many tags spaces may have: 1 up to this. [`Asid::UNTAGGED`] is not one of them, nor is the [reserved](Self::reserved) one.
    pub const fn slots(self) -> u16 {
        match self.reserved() {
            None => 0,
            Some(reserved) => reserved.0 - 1,
        }
    }
}
