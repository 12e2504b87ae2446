//! Where things are: physical addresses, the direct map, and the shape of a user address space.
//!
//! The user half ends one page below the canonical hole so that `syscall` as the last instruction of
//! user memory cannot return to a non-canonical address (the SYSRET fault, Intel SDM vol. 2B).

/// Bytes in a base page; every mapping of this kernel's user half uses it.
pub const PAGE_SIZE: usize = 4096;

/// First user address that may be mapped; below it null-pointer accesses must fault.
pub const USER_START: usize = 0x1_0000;

/// First address behind user memory.
pub const USER_END: usize = 0x0000_7fff_ffff_f000;

/// Start of the direct map of all physical memory.
#[cfg(target_os = "none")]
pub const DIRECT_MAP: usize = 0xffff_8000_0000_0000;
/// In the host tests physical memory is an ordinary mapping at this address.
#[cfg(not(target_os = "none"))]
pub const DIRECT_MAP: usize = 0x6000_0000_0000;

/// Highest address of the initial stack (exclusive).
pub const STACK_TOP: usize = USER_END;

/// How far the initial stack may grow, as Linux's default `RLIMIT_STACK`.
pub const STACK_LIMIT: usize = 8 << 20;

/// Pages kept unmapped between a growing stack and whatever lies below it, as Linux's
/// `stack_guard_gap`.
pub const STACK_GUARD: usize = 256 * PAGE_SIZE;

/// `mmap` without an address looks for room downwards from here.
pub const MMAP_TOP: usize = STACK_TOP - STACK_LIMIT - STACK_GUARD;

/// Load address of position-independent programs.
pub const PIE_BASE: usize = 0x5555_5555_4000;

/// A physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// Wraps a raw physical address.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw value.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Where the kernel sees this address: the direct map.
    pub fn direct<T>(self) -> *mut T {
        (DIRECT_MAP + self.0 as usize) as *mut T
    }

    /// The physical address behind a direct-map address.
    pub const fn of_direct(virt: usize) -> Self {
        Self((virt - DIRECT_MAP) as u64)
    }
}

/// Rounds down to a page boundary.
pub const fn page_floor(addr: usize) -> usize {
    addr & !(PAGE_SIZE - 1)
}

/// Rounds up to a page boundary; `None` when that does not fit.
pub const fn page_ceil(addr: usize) -> Option<usize> {
    match addr.checked_add(PAGE_SIZE - 1) {
        Some(sum) => Some(page_floor(sum)),
        None => None,
    }
}
