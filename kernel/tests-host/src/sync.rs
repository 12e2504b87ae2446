//! Shim of `sync`: spin locks without serving an inbox, and the kernel's own sleeping lock.

#[path = "../../src/sync/sleep.rs"]
mod sleep;

pub use sleep::{SleepMutex, SleepMutexGuard};
pub use spin::mutex::{Mutex, MutexGuard};
