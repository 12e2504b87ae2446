//! The `shootdown` engine on real silicon without a kernel: threads as CPUs, POSIX real-time signals as interrupts.
//!
//! A signal handler interrupts its thread at any instruction, as an interrupt handler does its CPU; cores, caches and
//! memory order are the real ones. So this is where to try the engine's interface (`examples/start_here.rs`), and where
//! `cargo test` and `./lab torture --machine hosted` stress it, also under ThreadSanitizer.
//!
//! How a machine is made:
//!
//! * A *CPU* is a token: a number, an inbox of interrupts, a [translation cache](Memory). A thread that holds it is what runs on
//!   that CPU; one thread a CPU idles, and [tasks](Machine::run_tasks) are further threads that wait until they are given a CPU.
//! * A signal says "look at your CPU's pending interrupts". Handing a CPU on happens in the handler too: so a task is
//!   preempted at any instruction, and may continue on another CPU.
//! * *Interrupts off* is a flag of the thread. The handler that finds it set returns at once, and the code that clears it looks for
//!   what came meanwhile. Blocking the signal instead costs a system call each way; the engine does this several times a
//!   request. Measured (2-core x86-64 virtual machine): 1.5 to 2 ns for a pair by flag, 280 to 320 ns by
//!   `pthread_sigmask`.
//! * There is no real translation to flush, so each CPU has a software one that keeps what it may, and loads what it can
//!   ahead of time.
//!
//! What runs in interrupt context (called functions, [`Machine::on_tick`]) may interrupt an allocation or a `println!` of its
//! own thread, and must therefore be async-signal-safe: no allocation, no locks, no output. The engine's responder path is
//! (invariant I9).
//!
//! Linux only, on whatever processor.

#![cfg(target_os = "linux")]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]

pub mod calls;
mod config;
mod cpu;
mod entry;
mod futex;
mod idle;
mod idling;
mod inner;
mod machine;
mod memory;
mod platform;
mod queue;
mod root;
mod running;
mod schedule;
mod second;
mod service;
mod signal;
mod task;
mod thread;
mod tlb;
pub mod torture;

pub use config::{Config, Refused};
pub use machine::Machine;
pub use memory::{Memory, PAGES_PER_TABLE, Part, TABLES};
pub use platform::Hosted;
pub use second::{Relax, SecondPlatform};
