//! Locks of the kernel.
//!
//! | lock | waits by | held with | for |
//! |---|---|---|---|
//! | [`Mutex`] | spinning | preemption off | a few hundred instructions, thread context |
//! | [`IrqMutex`] | spinning | interrupts off | the same, interrupt handlers too |
//! | [`SleepMutex`] | sleeping | nothing | whatever waits for other CPUs or for memory |
//! | [`PassedMutex`] | sleeping | nothing | the same, of which most only want a look at what it protects |
//!
//! Who spins serves this CPU's shootdown inbox: whoever holds the lock may be waiting for a shootdown that this
//! CPU has to acknowledge, and with interrupts off only polling gets it through (docs/decisions/calls.md, "Waiting
//! serves the inbox").
//!
//! Lock order: changes of a file, its syncs, address space, then shared memory or contents of a file, then frame allocator. A table of
//! descriptors comes before the contents of a file, and before the locks of pipes and their like that `poll` looks at. Run queues and other task locks are leaves.
//! No spin lock is held over access to user memory that may fault, nor over a ticket's `wait`; the
//! address space's is held over a wait where others must not see the space in between.
//!
//! It may not know threads: those that sleep for a lock are [`Sleeper`]s, and a hook says which of them runs.

// A model of a lock has others.
use core::{hint, sync::atomic};

mod irq;
mod list;
mod passed;
mod sleep;
mod spin;

pub use irq::IrqMutex;
pub use list::{Link, List, Listed};
pub use passed::{PassedMutex, PassedMutexGuard};
pub use sleep::{RUNNING, SleepMutex, SleepMutexGuard, Sleeper};
pub use spin::Mutex;
