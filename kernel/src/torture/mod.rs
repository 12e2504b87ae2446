//! Torture of the engine in ring 0: the mix of `shootdown-torture` on kernel threads, with real page tables, windows and TLBs, the timer's
//! interrupt as interrupt context, preemption, and CPUs that leave and come back.
//!
//! `torture=<seconds>` on the kernel command line runs it instead of the first program; `seed=<n>` chooses the random numbers (1).
//! The console then has, besides log lines:
//!
//! ```text
//! torture: progress ns=.. steps=.. cpu0=.. task0=..   once a second, see `Torture::progress`
//! torture: stuck worker=5 steps=..                   no step for long; then all backtraces, and the run ends
//! torture: ...                                       the lines of `Summary::protocol`, the last one `torture: done violations=0 ...`
//! ```
//!
//! The machine ends with status 0 without violations, else 1.
//!
//! | file | what |
//! |---|---|
//! | `run` | threads, time, verdict |
//! | `host` | CPUs, contexts and preemption, as the torture asks for them |
//! | `memory` | spaces, frames and loads, as it asks for them |
//! | `notes` | which worker a thread is, and where |
//! | `tables` | page tables that change under everybody's hands |
//!
//! It may not know files or system calls; only `traps` and `start` may know it.

mod host;
mod memory;
mod notes;
mod run;
mod tables;

pub use run::{start_if_asked, tick};
