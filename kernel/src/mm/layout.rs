//! The shape of a user address space, and page arithmetic.

pub use crate::addr::{PAGE_BYTES as PAGE_SIZE, PhysAddr, TOP_ENTRY_BYTES, USER_END, WINDOWS};

/// First user address that may be mapped; below it null-pointer accesses must fault.
pub const USER_START: usize = 0x1_0000;

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
