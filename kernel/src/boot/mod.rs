//! From the first instruction to all CPUs running.
//!
//! [`entry`] holds the first instructions, [`start`] the order of everything after them.

mod acpi;
mod entry;
pub mod fail;
mod info;
mod memory;
mod multiboot;
mod physical;
mod smp;
mod start;
mod start_info;

pub use info::{BootInfo, info, try_info};
pub use smp::restart_tick;
