//! A deterministic machine that runs the `shootdown` engine, the very same source, on 1 to 4096 virtual CPUs.
//!
//! Each virtual CPU is a coroutine. Every atomic access, fence and spin of the engine is an event
//! (`shootdown`'s `sync.rs` has a face for it), and so is everything that a CPU asks of its platform. Two
//! models decide what an event means:
//!
//! * [`timed`]: a discrete-event clock with cache lines, interrupts and TLBs that cost what a preset says.
//!   It answers how long things take.
//! * [`explore`]: no clock, but choices: who runs next, which of the values that weak memory allows a load
//!   sees, when an interrupt arrives, what the TLB caches. It answers whether things can go wrong.
//!
//! Nothing here knows the engine's protocol, and the engine does not know that it is simulated.

#![deny(missing_docs, missing_debug_implementations)]

mod campaign;
pub mod explore;
pub mod fuzz;
pub mod kernel;
pub mod machine;
pub mod oracle;
pub mod stories;
pub mod timed;
pub mod torture;
pub mod trace;
pub mod walkthrough;
pub mod workload;

pub use machine::{
    Engine, Failure, FailureKind, Machine, PLATFORM, Program, SimPlatform, kernel_root_at, root_at,
};
