//! `--machine sim`: the workloads on the simulated machine. The same words print the same bytes, on every host.
//!
//! * [`mod@command`]: when this machine is meant, and the course of one bench on it;
//! * [`setup`]: the machine: preset, figures that the caller set, and where each figure comes from;
//! * [`run`]: the rows of a workload, and what is made of them;
//! * [`farm`]: rows on all processors of this host; [`steps`]: how they get on;
//! * [`sensitivity`]: what the table hangs on.

mod command;
mod farm;
mod run;
mod sensitivity;
mod setup;
mod steps;

pub use command::{command, is_meant};
pub use farm::all;
pub use run::{Findings, Run, Shape, Shapes, Simulated};
pub use setup::Setup;
pub use steps::Steps;
