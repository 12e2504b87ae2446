//! Cross-CPU calls, measured where CPUs are real: the workloads `selected` (table T5) and `shoot` for ring 0 of the reference
//! kernel and for threads that play CPUs.
//!
//! All peers of `shootdown-peers` and the engine stand side by side in one run and take turns (A B C A B C ...), so that
//! whatever disturbs the machine disturbs all of them. A row is one shape of calls; its turns give the time of each call,
//! and counts: interrupts sent, handlers entered, handlers that found nothing to do.
//!
//! Every call is checked when it returns: each target has run the function exactly once for it. A row says how many calls were
//! wrong; there should be none.
//!
//! | file | what |
//! |---|---|
//! | `plan` | what to measure and in which shapes, from words like `selected,initiators=1:2,targets=1:4,calls=200` |
//! | `words` | its words, as values or mistakes |
//! | `row` | one shape of calls |
//! | `contender` | whose calls |
//! | `tally`, `counted` | what each CPU counts, and the platform that counts interrupts |
//! | `engines` | ours, with all that it can have and plain |
//! | `host` | what a machine provides |
//! | `bench` | the run: turns, workers, checks |
//! | `turn`, `work` | one peer's turn; the functions that are called |
//! | `result` | what a row found, as a line for the lab |

#![no_std]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]

extern crate alloc;

mod bench;
mod contender;
mod counted;
mod engines;
mod host;
mod plan;
mod result;
mod row;
mod tally;
mod turn;
mod words;
mod work;

pub use bench::{Bench, Verdict};
pub use contender::Contender;
pub use engines::Engines;
pub use host::Host;
pub use plan::{Plan, Rest, Workload};
pub use row::Row;
pub use shootdown_peers::{Masks, Peer};
pub use tally::Tallies;
pub use words::Mistake;
