//! Workload T4: processes on one CPU hand a token round, each touching pages of its own in its turn.
//!
//! Every turn is one wake-up and one switch of address spaces. Without hardware tags a switch forgets all translations,
//! and each of the pages touched has to be walked for again; with tags they may still be there. The processes are forks
//! of one, so that they use the same virtual addresses: whatever a switch leaves behind and must not, is found at once.
//!
//! * [`token`] and [`ring`]: what is handed round, and through what;
//! * [`pages`]: the pages of a process, and how a foreign or old value shows;
//! * [`chores`]: the self-check: how a process changes its pages so that old translations would show;
//! * [`players`]: the other processes;
//! * [`deaths`]: learning that one of them died;
//! * [`mod@bench`]: options, and what differs from other [courses](crate::course).

pub mod bench;
pub mod chores;
pub mod deaths;
pub mod pages;
pub mod players;
pub mod ring;
pub mod token;

pub use bench::Pingpong;
