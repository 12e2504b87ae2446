//! Workloads of the timed machine: what the published tables measure, on virtual CPUs.

mod engine;
mod madvise;
mod shootdown;
mod sweep;

pub use engine::{MAX_CPUS, on_large_stack};
pub use madvise::{Madvise, Measured, PUBLISHED};
pub use shootdown::{Shot, shoot};
pub use sweep::{Change, Effect, sweep};
