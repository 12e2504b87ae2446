//! Shim of `sync`: the kernel's own spin lock, which keeps preemption off, and its own sleeping lock.

#[path = "../../src/sync/sleep.rs"]
mod sleep;
#[path = "../../src/sync/spin.rs"]
mod spin;

pub use sleep::{SleepMutex, SleepMutexGuard};
pub use spin::{Mutex, MutexGuard};
