//! Shim of `sync`: the same locks without serving an inbox.

pub use spin::mutex::{Mutex, MutexGuard};
