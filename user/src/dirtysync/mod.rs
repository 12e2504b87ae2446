//! Workload T1, second part: writes through a shared mapping of a file, each followed by `fdatasync`.
//!
//! Every thread, pinned to a CPU of its own, repeats: write n consecutive pages at a random place of the mapping, then
//! `fdatasync`. The first write to a clean page faults; the sync takes the right to write away from all dirty pages and
//! flushes them on every CPU of the process before it stores them. Thread 0 records its times, the others work beside it.
//! Policies alternate in short slices, as in [`madvise`](crate::madvise).
//!
//! On Linux a file in memory has no disk behind it: its `fdatasync` does nothing and flushes nothing, and its pages stay
//! writable. There the file is on a disk in memory that the lab has prepared, or in a directory that is named.
//!
//! * [`target`]: the file and its mapping, one operation, and the check that no write was lost;
//! * [`ramdisk`]: the disk in memory;
//! * [`mod@bench`]: options, and what differs from other [courses](crate::course).

pub mod bench;
pub mod ramdisk;
pub mod target;

pub use bench::Dirtysync;
