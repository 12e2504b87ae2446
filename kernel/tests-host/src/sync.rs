//! Shim of `sync`: the kernel's own spin lock, which keeps preemption off, and its own sleeping locks.

use core::{hint, sync::atomic};

#[path = "../../src/sync/list.rs"]
mod list;
#[path = "../../src/sync/passed.rs"]
mod passed;
#[path = "../../src/sync/sleep.rs"]
mod sleep;
#[path = "../../src/sync/spin.rs"]
mod spin;

pub use list::{Link, List, Listed};
pub use passed::{PassedMutex, PassedMutexGuard};
pub use sleep::{RUNNING, SleepMutex, SleepMutexGuard, Sleeper};
pub use spin::{Mutex, Mutex as IrqMutex, MutexGuard};
