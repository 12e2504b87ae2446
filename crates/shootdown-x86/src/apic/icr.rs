//! The interrupt command: what is sent, and to whom.
//!
//! SDM vol. 3A, "Interrupt Command Register (ICR)" and, for x2APIC, "ICR Operation in x2APIC Mode".

/// Lowest vector that is not an exception (SDM vol. 3A, "Exception and Interrupt Vectors").
const FIRST_EXTERNAL_VECTOR: u8 = 32;
/// Vectors of start-up IPIs name 4 KiB pages below this physical address.
const STARTUP_LIMIT: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;

/// An interrupt vector of 32 to 255: never an exception's, so that no handler that expects an
/// error code runs without one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vector(u8);

impl Vector {
    /// The vector, unless it is reserved for exceptions (below 32).
    pub const fn new(vector: u8) -> Option<Self> {
        if vector >= FIRST_EXTERNAL_VECTOR {
            Some(Self(vector))
        } else {
            None
        }
    }

    /// The number.
    pub const fn as_u8(self) -> u8 {
        self.0
    }
}

/// The physical id of a local APIC: 8 bits in xAPIC mode, 32 in x2APIC mode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ApicId(pub u32);

impl ApicId {
    /// x2APIC: the cluster this id belongs to and its bit in it, in the form of a logical
    /// destination. None for ids of more than 20 bits, which have no logical address
    /// (SDM vol. 3A, "Deriving Logical x2APIC ID from the Local x2APIC ID").
    pub const fn x2apic_logical(self) -> Option<u32> {
        if self.0 >> 20 == 0 {
            Some((self.0 >> 4) << 16 | 1 << (self.0 & 0xf))
        } else {
            None
        }
    }
}

/// Flat logical addressing has one bit for each of 8 CPUs.
pub(super) const FLAT_CPUS: usize = 8;

/// One bit of the eight of xAPIC flat logical addressing; it is the CPU's index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlatId(u8);

impl FlatId {
    /// The id of the CPU with this index, if below 8.
    pub const fn new(cpu: usize) -> Option<Self> {
        if cpu < FLAT_CPUS {
            Some(Self(1 << cpu))
        } else {
            None
        }
    }

    /// The bit, as in the logical destination register.
    pub const fn bit(self) -> u8 {
        self.0
    }
}

/// A page below 1 MiB where a starting CPU begins in real mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupPage(u8);

impl StartupPage {
    /// The page at this physical address, if it is 4 KiB aligned, below 1 MiB and not in
    /// 0xa0000..0xc0000, whose vectors are reserved (Intel MultiProcessor Specification 1.4,
    /// "Using STARTUP IPI").
    pub const fn new(physical: u64) -> Option<Self> {
        let reserved = physical >= 0xa_0000 && physical < 0xc_0000;
        if physical < STARTUP_LIMIT && physical % PAGE_BYTES == 0 && !reserved {
            Some(Self((physical / PAGE_BYTES) as u8))
        } else {
            None
        }
    }
}

/// Where an interrupt goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The one CPU with this id.
    Physical(ApicId),
    /// Several CPUs: 8 bits of [`FlatId`]s in xAPIC mode; in x2APIC mode cluster number and 16
    /// member bits, see [`ApicId::x2apic_logical`].
    Logical(u32),
    /// Every CPU but this one, whether the kernel knows it or not.
    AllButSelf,
}

impl Destination {
    /// The destination field: ignored by the controller for a shorthand.
    pub(super) const fn field(self) -> u32 {
        match self {
            Self::Physical(id) => id.0,
            Self::Logical(members) => members,
            Self::AllButSelf => 0,
        }
    }
}

/// What is sent: the low half of the ICR without its destination bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// An ordinary interrupt.
    Fixed(Vector),
    /// A remote action request ([`rar`](crate::rar)).
    RemoteAction,
    /// A non-maskable interrupt.
    Nmi,
    /// Puts a CPU into its wait-for-start-up state.
    Init,
    /// Starts a CPU that waits for it.
    Startup(StartupPage),
}

/// Reserved where the processor has no remote actions.
const DELIVERY_REMOTE_ACTION: u32 = 0b011 << 8;
const DELIVERY_NMI: u32 = 0b100 << 8;
const DELIVERY_INIT: u32 = 0b101 << 8;
const DELIVERY_STARTUP: u32 = 0b110 << 8;
const LOGICAL: u32 = 1 << 11;
/// xAPIC: the previous command is on its way still.
pub(super) const PENDING: u32 = 1 << 12;
/// Must be set for everything but an INIT de-assert, which modern processors do not have.
const ASSERT: u32 = 1 << 14;
const SHORTHAND_SELF: u32 = 0b01 << 18;
const SHORTHAND_ALL_BUT_SELF: u32 = 0b11 << 18;

impl Command {
    const fn bits(self) -> u32 {
        ASSERT
            | match self {
                Self::Fixed(vector) => vector.0 as u32,
                Self::RemoteAction => DELIVERY_REMOTE_ACTION,
                Self::Nmi => DELIVERY_NMI,
                Self::Init => DELIVERY_INIT,
                Self::Startup(page) => DELIVERY_STARTUP | page.0 as u32,
            }
    }

    /// The low half of the ICR for this destination.
    pub(super) const fn low_to(self, to: Destination) -> u32 {
        self.bits()
            | match to {
                Destination::Physical(_) => 0,
                Destination::Logical(_) => LOGICAL,
                Destination::AllButSelf => SHORTHAND_ALL_BUT_SELF,
            }
    }

    /// The low half of the ICR that sends to the CPU itself.
    pub(super) const fn low_to_self(self) -> u32 {
        self.bits() | SHORTHAND_SELF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYONE_ELSE: Destination = Destination::AllButSelf;

    #[test]
    fn start_up_words_are_the_manuals() {
        // SDM vol. 3A, "Typical BSP Initialization Sequence" gives these two constants.
        assert_eq!(Command::Init.low_to(EVERYONE_ELSE), 0x000c_4500);
        let page = StartupPage::new(0x8000).unwrap();
        assert_eq!(Command::Startup(page).low_to(EVERYONE_ELSE), 0x000c_4608);
    }

    #[test]
    fn fixed_words() {
        let fixed = Command::Fixed(Vector::new(0xf0).unwrap());
        assert_eq!(fixed.low_to(Destination::Physical(ApicId(3))), 0x40f0);
        assert_eq!(fixed.low_to(Destination::Logical(0b101)), 0x48f0);
        assert_eq!(fixed.low_to_self(), 0x4_40f0);
        assert_eq!(
            Command::Nmi.low_to(Destination::Physical(ApicId(3))),
            0x4400
        );
        assert_eq!(
            Command::RemoteAction.low_to(Destination::Logical(0b101)),
            0x4b00
        );
    }

    #[test]
    fn exception_vectors_are_refused() {
        assert_eq!(Vector::new(31), None);
        assert_eq!(Vector::new(32).map(Vector::as_u8), Some(32));
    }

    #[test]
    fn logical_id_is_cluster_and_member() {
        assert_eq!(ApicId(0).x2apic_logical(), Some(0x0000_0001));
        assert_eq!(ApicId(0x1f).x2apic_logical(), Some(0x0001_8000));
        assert_eq!(ApicId(0xf_ffff).x2apic_logical(), Some(0xffff_8000));
        assert_eq!(ApicId(0x10_0000).x2apic_logical(), None);
    }

    #[test]
    fn startup_pages_are_aligned_low_and_not_reserved() {
        assert_eq!(StartupPage::new(0x8001), None);
        assert_eq!(StartupPage::new(0x10_0000), None);
        assert_eq!(StartupPage::new(0xa_0000), None);
        assert_eq!(StartupPage::new(0xb_f000), None);
        for (first, last) in [(0, 0x9_f000), (0xc_0000, 0xf_f000)] {
            assert_eq!(
                StartupPage::new(first).map(|page| u64::from(page.0) << 12),
                Some(first)
            );
            assert_eq!(
                StartupPage::new(last).map(|page| u64::from(page.0) << 12),
                Some(last)
            );
        }
    }

    #[test]
    fn flat_ids_end_at_eight() {
        assert_eq!(FlatId::new(7).map(FlatId::bit), Some(0x80));
        assert_eq!(FlatId::new(8), None);
    }
}
