//! Workload T1, second part: writes through a shared mapping of a file, each followed by `fdatasync`.
//!
//! Every thread, pinned to a CPU of its own, repeats: write n consecutive pages at a random place of the mapping, then
//! `fdatasync`. The first write to a clean page faults; the sync takes the right to write away from all dirty pages and
//! flushes them on every CPU of the process before it stores them. Thread 0 records its times, the others work beside it.
//! Policies alternate in short slices, as in [`madvise`](crate::madvise).
//!
//! On Linux the file is in tmpfs, which has no disk behind it: its `fdatasync` does nothing and flushes nothing, and its
//! pages stay writable. The figures there are those of the writes alone, and no comparison. A directory on another file
//! system can be named.
//!
//! * [`options`]: the command line;
//! * [`target`]: the file and its mapping, one operation, and the check that no write was lost;
//! * [`crew`]: the threads beside the measuring one;
//! * [`run`]: rounds, rows, exit code.

pub mod crew;
pub mod options;
pub mod run;
pub mod target;

pub use run::main;
