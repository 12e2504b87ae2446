//! From the first instruction to all CPUs running.

mod info;

#[allow(
    unused_imports,
    reason = "the stubs of other modules do not use all yet"
)]
pub use info::{BootInfo, MemoryRegion, info};
