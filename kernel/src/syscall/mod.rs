//! System calls: Linux's x86-64 numbers, structures and errors.
//!
//! Whatever user mode passes, a call answers with a result or an error number: pointers go through
//! `arch::uaccess`, lengths have bounds, arithmetic is checked. A number without a function answers
//! ENOSYS and is logged once.
//!
//! It may not know traps, torture or benches, and nobody but `traps` may know it.

mod alarms;
mod args;
mod clock;
mod credentials;
mod descriptors;
mod dispatch;
mod epoll;
mod files;
mod futex;
mod identity;
mod io;
mod memory;
mod outcome;
mod paths;
mod poll;
mod process;
mod random;
mod realtime;
mod resident;
mod schedule;
mod signals;
mod system;
mod unknown;
mod vm;

pub use dispatch::dispatch;
