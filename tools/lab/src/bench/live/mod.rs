//! Contests of calls where CPUs are real: in ring 0 of the reference kernel, and on threads of this host.
//!
//! The run itself is `shootdown-callbench`, on either machine; this chooses machines and plans, listens, and makes tables.
//!
//! * `command`: the course of one bench, and its result;
//! * `group`: which machines, with which plans;
//! * `machine`: how each is started;
//! * `row`: what a contender did in one shape of calls;
//! * `table`: what people read.

mod command;
mod group;
mod machine;
mod row;
mod table;

pub use command::command;
#[cfg(test)]
pub use command::recorded;
pub use row::parse;
