//! Threads of one process, each pinned to a CPU of its own, that repeat an operation on memory of their own; some share a part of it.
//!
//! Thread 0 records its times, and the operations of all are counted. A space stays tracked once it is, and whether it becomes so is decided as its second thread starts: so
//! each turn is a process of its own, which ends with it.
//!
//! * [`operation`]: the operations;
//! * [`child`]: the process of a turn;
//! * [`mod@bench`]: options, and what differs from other [courses](crate::course).

pub mod bench;
pub mod child;
pub mod operation;

pub use bench::Threads;
