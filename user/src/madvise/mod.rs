//! Workload T1: the cost of one discard-and-touch iteration, and proof that it discards.
//!
//! Thread 0, pinned to the first CPU, repeats: `madvise(MADV_DONTNEED)` over n pages, then write
//! each of them. The other threads of the process busy-wait in user mode on CPUs of their own, so
//! that every iteration needs a flush on each of them.
//!
//! * [`mod@slice`]: the measured loop;
//! * [`companions`]: the threads that busy-wait;
//! * [`rule`] and [`check`]: the self-check, and the reasoning why what it counts as stale is
//!   stale;
//! * [`mod@bench`]: options, and what differs from other [courses](crate::course).

pub mod bench;
pub mod check;
pub mod companions;
pub mod rule;
pub mod slice;

pub use bench::Madvise;
