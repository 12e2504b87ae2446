//! CPUs that leave the running kernel and come back.
//!
//! A CPU is in one of four stages. Threads ask, one at a time; the CPU itself answers from its idle thread, which is where
//! it comes to when it is closed for threads:
//!
//! ```text
//!            take_offline                    park_if_asked
//! Running ------------------> Leaving ------------------------> Parked
//!    ^       threads move        |   vacate, Shootdown::offline    |
//!    |       to other CPUs       |   then HLT, interrupts off      | bring_online
//!    |                                                             | NMI until it answers
//!    +--------------------- Returning <----------------------------+
//!      Shootdown::online, timer, open for threads
//! ```
//!
//! A parked CPU keeps its stacks, tables and per-CPU data and waits in HLT with interrupts off. It is woken by an NMI, which
//! nothing but a panic and a request for backtraces sends besides, and looks at its stage. Rejected: INIT and start-up IPIs, as
//! Linux does it. They would reset what is right already, and cost 10 ms by the manual; only a self-test does so. The TLB is
//! what must not survive, and the engine drops it (I8).
//!
//! CPU 0 never leaves: it keeps the time of those that are gone.
//!
//! It may not know files or system calls: `fs` is given [`command`] for what is written to the file of a CPU.

mod park;
mod request;

pub use park::park_if_asked;
pub use request::{bring_online, command, take_offline};
