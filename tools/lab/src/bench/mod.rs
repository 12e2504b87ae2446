//! `lab bench`: workload x machine x policy -> rows -> tables and one JSON object.
//!
//! * [`workload`]: what describes a workload; [`workloads`]: each of them, and the list of all;
//! * [`course`]: the course of one bench, [`plan`]: what it carries out; [`machine`]: where CPUs are real, how it starts and what it says;
//! * [`guests`]: a bench in guests of the reference kernel;
//! * [`program`], [`contest`]: what the two kinds of workloads make of the command line, and of rows of such machines;
//! * [`wis`]: others' tests, built from their sources;
//! * [`cores`]: on real cores of this host;
//! * [`ports`]: on machines of other architectures;
//! * [`sim`]: on the simulated machine; [`trace`]: one iteration there;
//! * [`row`], [`columns`]: rows of any machine; how they are shown;
//! * [`report`]: what becomes of results.

mod columns;
mod contest;
mod cores;
mod course;
mod guests;
mod machine;
mod plan;
mod ports;
mod program;
#[cfg(test)]
mod recorded;
pub mod report;
mod row;
mod sim;
mod trace;
mod wis;
mod workload;
mod workloads;

pub use columns::{bytes, counted, grid, micros, number, or_dash, short, time};
pub use course::command;
pub use report::{crowded, remarks};
pub use row::{REFERENCE, Row, median};
pub use workload::{Contest, OnLinux, Program};
pub use workloads::{CONTESTS, PROGRAMS, on_linux};
