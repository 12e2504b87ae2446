//! From the first instruction to all CPUs running the scheduler.
//!
//! [`entry`] holds the first instructions, [`boot_cpu`] the order of everything after them, [`others`] what the other CPUs do.
//! It may know every folder, and nobody imports it but the self-tests.

mod boot_cpu;
mod entry;
mod others;

#[cfg(feature = "selftest")]
pub use others::start;
