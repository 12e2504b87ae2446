//! What the boot loader and the firmware say about the machine, and how a boot ends that cannot succeed.
//!
//! It reads, and starts nothing: it may not know memory management or anything above it.

pub mod acpi;
pub mod fail;
pub mod info;
mod limits;
pub mod memory;
pub mod multiboot;
mod physical;
pub mod start_info;

pub use info::{BootInfo, info, try_info};
