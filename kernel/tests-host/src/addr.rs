//! Shim of `addr`: the direct map is where [`memory`](crate::memory) puts the simulated frames.

/// Bytes in the smallest page.
pub const PAGE_BYTES: usize = 4096;
/// One past the last user address.
pub const USER_END: usize = 0x0000_7fff_ffff_f000;
/// What one entry of the root table translates.
pub const TOP_ENTRY_BYTES: usize = 1 << 39;
/// Where windows are, see `mm::Window`: one entry of the root table, kept free of everything else.
pub const WINDOWS: core::ops::Range<usize> = 160 * TOP_ENTRY_BYTES..161 * TOP_ENTRY_BYTES;
/// Where the simulated physical memory is.
pub const DIRECT_MAP: usize = 0x6000_0000_0000;

/// A physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// The address with this number.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Where the host sees it.
    pub const fn to_direct(self) -> *mut u8 {
        (self.0 as usize + DIRECT_MAP) as *mut u8
    }
}
