//! The kernel's half of every page-table root.

use shootdown::Root;

/// Entries of one page table.
pub const TABLE_ENTRIES: usize = 512;

/// The root that maps the kernel only: idle CPUs and dying processes load it.
pub fn kernel_root() -> Root {
    todo!()
}

/// PML4 entries 256..512 of every root. They never change after boot, so a copy stays true.
pub fn kernel_half() -> [u64; TABLE_ENTRIES / 2] {
    todo!()
}

/// Whether pages may be marked no-execute (always: boot refuses a CPU without NX).
pub const NX: u64 = 1 << 63;
