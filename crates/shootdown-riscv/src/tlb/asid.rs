//! Address-space identifiers: the tags that keep translations apart.
//!
//! "The meaning of an ASID is local to a hart" (Privileged, "Supervisor Memory-Management Fence Instruction"), so each hart may have its own for a space.

/// An address-space identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Asid(u16);

impl Asid {
    /// For roots without a tag of their own, and for all roots where there are none. In a fence it is a register that holds 0, never `x0`.
    pub const UNTAGGED: Self = Self(0);

    /// The identifier with this number. Whether a hart has it, [`AsidBits::has`] says.
    pub const fn new(asid: u16) -> Self {
        Self(asid)
    }

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }
}

/// ASIDLEN: how many bits an ASID has, 0 to 16 (Privileged, "Supervisor Address Translation and Protection (satp) Register").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AsidBits(u8);

impl AsidBits {
    /// No ASIDs: everything is cached as [`Asid::UNTAGGED`].
    pub const NONE: Self = Self(0);

    /// `bits` of them; none if there are more than 16.
    pub const fn new(bits: u8) -> Option<Self> {
        if bits <= 16 { Some(Self(bits)) } else { None }
    }

    /// How many tags there are besides [`Asid::UNTAGGED`].
    pub const fn tags(self) -> usize {
        (1 << self.0) - 1
    }

    /// Whether a hart with these bits has `asid`. `satp` drops the bits that it does not have, and two tags would be one.
    pub const fn has(self, asid: Asid) -> bool {
        asid.0 as usize <= self.tags()
    }

    /// How many low bits of the field hold a one: "The least-significant bits of ASID are implemented first".
    pub(super) const fn of_field(field: u64) -> Self {
        // At most 16, by the width of the field.
        Self((field as u16).trailing_ones() as u8)
    }
}

/// What happens, as a root is loaded, to what its tag has cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TagEntries {
    /// It may be used.
    Keep,
    /// It is dropped, cached entries of tables too; global translations stay.
    Drop,
}
