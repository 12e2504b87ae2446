//! How much a loader may say.

/// Most pieces of memory that are kept. QEMU gives under ten, firmware some dozens.
pub(super) const MAX_REGIONS: usize = 64;
/// Longest command line, in bytes.
pub(super) const CMDLINE_BYTES: usize = 4096;
