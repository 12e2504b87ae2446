//! `lab bench`: workload x machine x policy -> rows -> tables and one JSON object.
//!
//! * [`workload`]: what describes a workload; [`workloads`]: each of them, and the list of all;
//! * [`row`], [`columns`]: rows of any machine; how they are shown;
//! * [`measure`]: the course of one bench; on booted machines with its [`plan`], [`merge`], [`table`], and [`trace`] for one iteration;
//! * [`sim`]: on the simulated machine;
//! * [`calls`], [`live`]: contests of cross-CPU calls, simulated and where CPUs are real;
//! * [`report`]: what becomes of results.

mod calls;
mod columns;
mod live;
mod measure;
mod merge;
mod plan;
#[cfg(test)]
mod recorded;
mod report;
mod row;
mod sim;
mod table;
mod trace;
mod workload;
mod workloads;

pub use calls::Contest;
pub use live::parse as parse_call_row;
pub use measure::command;
pub use row::Row;
pub use workload::Program;
pub use workloads::{CONTESTS, PROGRAMS, needs_disk};
