//! `--machine sim`: the workloads on the simulated machine. The same words print the same bytes, on every host.
//!
//! * [`mod@command`]: when this machine is meant, and the course of one bench on it;
//! * [`setup`]: the machine: preset, figures that the caller set, and where each figure comes from;
//! * [`madvise`], [`pingpong`], [`preemptoff`] and [`zerocopy`]: the rows of each workload, its table, and its part of the result;
//! * [`sensitivity`]: what the table hangs on.

mod command;
mod madvise;
mod pingpong;
mod preemptoff;
mod sensitivity;
mod setup;
mod zerocopy;

pub use setup::{Setup, number};

pub use command::{command, is_meant};
