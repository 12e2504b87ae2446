//! Physical addresses, and what is fixed in the layout of the virtual address space.

use core::fmt;

/// Bytes in the smallest page.
pub const PAGE_BYTES: usize = 4096;
/// One past the last user address: the last page below the canonical hole is left out, because
/// SYSCALL there would return to a non-canonical address (SDM vol. 2B, "SYSRET").
pub const USER_END: usize = 0x0000_7fff_ffff_f000;
/// What one entry of the root table translates.
pub const TOP_ENTRY_BYTES: usize = 1 << 39;
/// Where windows are, see `mm::Window`: one entry of the root table, kept free of everything else.
pub const WINDOWS: core::ops::Range<usize> = 160 * TOP_ENTRY_BYTES..161 * TOP_ENTRY_BYTES;
/// Where all physical memory is mapped, in order (PML4 entry 256).
#[cfg(target_os = "none")]
pub const DIRECT_MAP: usize = 0xffff_8000_0000_0000;
/// Where the tests on the host put the memory that they simulate.
#[cfg(not(target_os = "none"))]
pub const DIRECT_MAP: usize = 0x6000_0000_0000;
/// Where the kernel image is linked (PML4 entry 511): physical address plus this.
pub const KERNEL_BASE: usize = 0xffff_ffff_8000_0000;
/// The stacks of CPUs other than the first, in the last GiB, far behind the local APIC's page.
pub const CPU_STACKS: usize = 0xffff_ffff_e000_0000;

/// A physical address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// Where the direct map shows it.
    pub const fn to_direct(self) -> *mut u8 {
        (self.0 as usize + DIRECT_MAP) as *mut u8
    }

    /// The physical address behind a pointer into the direct map or the kernel image.
    pub fn of<T>(pointer: *const T) -> Self {
        let address = pointer.addr();
        if address >= KERNEL_BASE {
            assert!(
                address < CPU_STACKS,
                "{address:#x} is on the stack of a CPU"
            );
            Self((address - KERNEL_BASE) as u64)
        } else {
            assert!(address >= DIRECT_MAP, "{address:#x} is a user address");
            Self((address - DIRECT_MAP) as u64)
        }
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:#x}", self.0)
    }
}
