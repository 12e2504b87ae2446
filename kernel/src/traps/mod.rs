//! Exceptions, interrupts and system calls: from the stubs in `entry.s` to the handlers.
//!
//! The top of the running kernel: it may know every folder but [`start`](crate::start), and nobody imports it.

mod dispatch;
mod entry;
mod fault;
