//! `lab bench`: workload x machine x policy, as one table and one JSON object.

mod calls;
mod columns;
mod live;
mod measure;
mod merge;
mod plan;
mod report;
mod rows;
mod sim;
mod table;
mod trace;
mod waking;
mod workload;

pub use live::LiveRow;
pub use measure::command;
