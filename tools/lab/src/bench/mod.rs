//! `lab bench`: workload x machine x policy, as one table and one JSON object.

mod measure;
mod plan;
mod report;
mod rows;
mod sensitivity;
mod simulated;
mod table;
mod trace;
mod workload;

pub use measure::command;
