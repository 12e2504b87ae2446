//! What all measuring programs have in common: policies in short, interleaved slices; then the check; then the rows.
//!
//! A program is a [`Program`]: its options, its table, what serves all shapes. For each shape it starts a [`Bench`],
//! which takes a turn, checks, and adds its own fields to a row. Policies alternate within each round, in an order that
//! rotates, so that a disturbance of the machine hits all alike.
//!
//! * [`options`]: the command line; [`effort`]: the part of it that is the same everywhere;
//! * [`mod@bench`]: what a program has to say;
//! * [`run`]: shapes, rounds, turns;
//! * [`row`]: one row of the table;
//! * [`crew`]: threads that all do the same work, for programs that measure so.

pub mod bench;
pub mod crew;
pub mod effort;
pub mod options;
pub mod row;
pub mod run;

pub use bench::{Bench, Checked, Program, Shape, Slice, Turn};
pub use options::{Axis, OwnOptions, Table};
pub use row::{Entry, Sample};
pub use run::{Course, main};
