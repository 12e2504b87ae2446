//! Shim of `sync`: the same locks without serving an inbox.

pub use spin::mutex::{Mutex, MutexGuard};
pub use spin::mutex::{Mutex as SleepMutex, MutexGuard as SleepMutexGuard};
