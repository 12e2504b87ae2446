//! How memory is laid out: tables and pages, addresses, and how much there is of everything.

/// Entries of the root table.
pub const REGIONS: usize = 5;
/// Entries of a leaf table that mean something.
pub const PAGES_PER_TABLE: usize = 4;
/// The region that every root shares: the kernel's.
pub const KERNEL_REGION: usize = 3;
/// The region that is empty in shared roots, and different in every private one: that of windows.
pub const WINDOW_REGION: usize = 4;
/// Pages that a root translates.
pub const PAGES: usize = REGIONS * PAGES_PER_TABLE;
/// Pages of them that are a space's own.
pub const USER_PAGES: usize = KERNEL_REGION * PAGES_PER_TABLE;
/// Frames of the machine: fewer than three full spaces, their windows and the host's own roots want, so that they are reused soon.
pub const FRAMES: usize = 48;

/// Room in a frame: for the entries of a root, of which there are more than pages in a leaf table.
pub(super) const ENTRIES: usize = REGIONS;

/// Spaces that exist at once, at most.
pub(super) const SPACES: usize = 3;
/// The name of the kernel's part in the oracle's book.
pub(super) const KERNEL: u64 = 0;

const PAGE_SHIFT: u32 = 12;

/// The address of a page, as the engine counts.
pub(super) const fn address_of(page: usize) -> usize {
    page << PAGE_SHIFT
}

/// The page at an address.
pub(super) const fn page_at(address: usize) -> usize {
    address >> PAGE_SHIFT
}

/// The page number of a kernel page.
pub(super) const fn kernel_page(index: usize) -> usize {
    KERNEL_REGION * PAGES_PER_TABLE + index
}

/// The page number of a window.
pub(super) const fn window_page(index: usize) -> usize {
    WINDOW_REGION * PAGES_PER_TABLE + index
}
