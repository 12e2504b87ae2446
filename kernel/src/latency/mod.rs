//! The latency tracer: how long each CPU keeps preemption or interrupts off, and where that began.
//!
//! Off by default, when it costs one predictable branch wherever preemption or interrupts go off or on; `/proc/shootdown/latency`
//! switches and shows it. What is measured:
//!
//! * a *preemption-off span*, from the outermost `preempt::disable` to its `preempt::enable`;
//! * an *interrupts-off span*, from the CLI, or the interrupt or exception that the processor took with interrupts on, to the
//!   STI or IRET that ends it. A CPU that halts has interrupts on, and one that is parked offline is not counted;
//! * a *wait*, inside either, for other CPUs to answer the engine.
//!
//! Where a span began is told as file and line of the caller ([`core::panic::Location`]), so whatever stands between the caller
//! and the switch itself is `#[track_caller]`. A span counts in the interval in which it ends. NMI handlers are in no span.
//!
//! | file | what |
//! |---|---|
//! | `control` | on, off, intervals |
//! | `hooks` | what the switches themselves call |
//! | `record` | what one CPU has seen |
//! | `show` | `/proc/shootdown/latency` |
//!
//! It may know `arch` and nothing above: those that it watches call it.

mod control;
mod hooks;
mod record;
mod show;

pub use hooks::{irqs_off, irqs_on, preempt_off, preempt_on, wait_finished, wait_started};
pub use show::{command, report};
