//! Page-table entries as the processor reads them, and faults that come of what is cached of older ones.
//!
//! Bits: reference manual vol. 1, 5.4.5 "Multi-level Page Table Structure Supported by page walking", figures of the table entry formats; 7.5.3 "TLB Entry Low-order Bits".

const V: u64 = 1 << 0;
const D: u64 = 1 << 1;
const PLV_SHIFT: u32 = 2;
const G: u64 = 1 << 6;
const NR: u64 = 1 << 61;
const NX: u64 = 1 << 62;
const RPLV: u64 = 1 << 63;

/// The empty entry of a page in the kernel's part, if that is to be global: it has G and nothing else. The pair that it is one of is global only if both have G.
///
/// Tables of the kernel's part are filled with it when they are made. A directory entry is never this: there, bit 6 says that it maps a huge page.
pub const EMPTY_GLOBAL: u64 = G;

/// What was tried when the processor found the entry in its TLB wanting (vol. 1, 5.4.3.1 "TLB-related Exceptions").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// A load: the page is invalid (PIL), or must not be read (PNR).
    Load,
    /// A store: the page is invalid (PIS), or not dirty (PME).
    Store,
    /// A fetch: the page is invalid (PIF), or must not be executed (PNX).
    Fetch,
    /// The privilege level is wrong (PPI): the processor does not say what was tried.
    Privilege,
}

impl Fault {
    /// What CSR.ESTAT says in Ecode, bits 21:16 (vol. 1, 7.4.6 "Exception Status"). None for what is no fault of a page.
    pub const fn of_estat(estat: u64) -> Option<Self> {
        match estat >> 16 & 0x3f {
            1 | 5 => Some(Self::Load),
            2 | 4 => Some(Self::Store),
            3 | 6 => Some(Self::Fetch),
            7 => Some(Self::Privilege),
            _ => None,
        }
    }

    /// Whether `entry`, as it is in the page table now, allows this at privilege level `plv` (CSR.PRMD.PPLV, 0 to 3). Then the fault came of what was cached before, and the handler
    /// [drops that](crate::Tlb::flush_faulted) and returns: the access is tried again. For the kernel's own accesses, too.
    ///
    /// With hardware that walks, D and V of the entry are what it finds there, or makes of P and W: a host that leaves that to it looks at those bits itself.
    pub const fn is_spurious(self, entry: u64, plv: u8) -> bool {
        let level = (entry >> PLV_SHIFT & 0b11) as u8;
        let may_access = if entry & RPLV != 0 {
            plv == level
        } else {
            plv <= level
        };
        let may_do = match self {
            Self::Load => entry & NR == 0,
            Self::Store => entry & D != 0,
            Self::Fetch => entry & NX == 0,
            Self::Privilege => true,
        };
        entry & V != 0 && may_access && may_do
    }
}
