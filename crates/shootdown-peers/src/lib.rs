//! How other kernels run a function on other CPUs, to be measured and verified beside `shootdown`.
//!
//! Each algorithm is written here from its published description, on the same [`Platform`](shootdown::Platform) and the
//! same atomics as the engine, so that it runs on the simulated machine too. They are for comparison only: they know
//! nothing of CPUs that come and go, of early acknowledgement, or of misuse, and they keep the weaknesses of the
//! originals, which their documentation names.
//!
//! | type | kernel | idea |
//! |---|---|---|
//! | [`Mailbox`] | many small ones | one message under one lock, an interrupt a target |
//! | [`OneLock`] | Xen today | one call at a time under one lock, a shared set of targets, multicast |
//! | [`TaskSet`] | Xen, series of April 2026 | a call of its own for each CPU, one global set of CPUs with calls |
//! | [`CallQueues`] | Linux | a queue for each target, an entry for each pair of CPUs |
//! | [`Scoreboard`] | FreeBSD | a table of all pairs of CPUs with generations |
//! | [`Series`] | Linux as a series of 2019 has it (T1) | the same around a flush, with and without each small patch of that series |
//! | [`Bits`] | none: designs to measure beside the engine | a bit for each pair of CPUs, a word that the target clears or numbers |
//!
//! [`Peer`] names them and the engine, and makes one; [`Masks`] says whom they call, and [`fifo_limit`] what the same calls allow anybody.
//!
//! All of them wait as their originals do: spinning, with interrupts as the caller had them.

#![no_std]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]

extern crate alloc;

mod bits;
mod call;
mod caller;
mod cross_call;
mod function;
mod limit;
mod lock;
mod mailbox;
mod masks;
mod one_lock;
mod ours;
mod peer;
mod queues;
mod scoreboard;
mod series;
mod set;
mod task_set;

pub use bits::{Acknowledgement, Bits};
pub use cross_call::CrossCall;
pub use limit::fifo_limit;
pub use mailbox::Mailbox;
pub use masks::Masks;
pub use one_lock::OneLock;
pub use peer::Peer;
pub use queues::CallQueues;
pub use scoreboard::Scoreboard;
pub use series::{Series, Without};
pub use task_set::TaskSet;
