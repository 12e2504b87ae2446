//! Cross-CPU calls measured in ring 0: the engine beside the algorithms of other kernels, in one boot.
//!
//! `calls=<plan>` on the kernel command line runs it instead of the first program; `shootdown-callbench` says what plans are, for
//! example `calls=selected,initiators=1:2,targets=1:2,ns=0,calls=500`. The lines on the console are those of a bench:
//! `@progress`, `@row` for each contender in each row, and at the end `calls: done rows=.. wrong=..`. The machine ends with
//! status 0 if no call was wrong, else 1.
//!
//! A program asks for the same by writing a plan to `/proc/shootdown/calls`: the write returns when the run is over, reading the file gives
//! its lines, and the machine goes on. One run a boot.
//!
//! What is measured is a second engine beside the kernel's own, on a vector of its own, so that nothing of the running
//! kernel depends on a peer.
//!
//! | file | what |
//! |---|---|
//! | `run` | command line, threads, verdict |
//! | `lines` | where the lines go |
//! | `machine` | the running machine, as the bench asks for it |
//! | `platform` | the platform of the contenders: the kernel's, but for the vector |
//!
//! It may not know memory management, files or system calls; only `traps` and `start` may know it.

mod lines;
mod machine;
mod platform;
mod run;

pub use lines::lines;
pub use run::{interrupt, run, start_if_asked};
