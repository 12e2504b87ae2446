//! Workload T1: the cost of one discard-and-touch iteration, and proof that it discards.
//!
//! Thread 0, pinned to the first CPU, repeats: `madvise(MADV_DONTNEED)` over n pages, then write
//! each of them. The other threads of the process busy-wait in user mode on CPUs of their own, so
//! that every iteration needs a flush on each of them. Policies alternate in short slices within
//! each round, in an order that rotates, so that a disturbance of the machine hits all alike.
//!
//! * [`options`]: the command line;
//! * [`mod@slice`]: the measured loop;
//! * [`companions`]: the threads that busy-wait;
//! * [`rule`] and [`check`]: the self-check, and the reasoning why what it counts as stale is
//!   stale;
//! * [`row`]: one row of the table;
//! * [`run`]: rounds, exit code.

pub mod check;
pub mod companions;
pub mod options;
pub mod row;
pub mod rule;
pub mod run;
pub mod slice;

pub use run::main;
