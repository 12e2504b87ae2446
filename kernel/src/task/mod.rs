//! Threads, processes and scheduling.
//!
//! | file | what |
//! |---|---|
//! | `thread`, `process`, `id` | what there is, and its numbers |
//! | `sched`, `cpu`, `queue`, `affinity`, `timer` | who runs where, who sleeps how long |
//! | `futex`, `wait` | sleeping for something to happen |
//! | `signal` | signals, exceptions of user mode, handlers |
//! | `start`, `clone`, `exec`, `child`, `exit` | life and death |
//!
//! Lock order: process tables (`members`, `children`, `files`, `actions`), then wait queues and
//! futex buckets, then timers, then ready queues. A futex bucket alone is held over access to user
//! memory, so address spaces come after it. Ready and timer queues are for interrupt handlers too.

mod affinity;
mod child;
mod clone;
mod cpu;
mod current;
mod exec;
mod exit;
pub mod futex;
mod id;
mod name;
mod process;
mod queue;
mod sched;
pub mod signal;
mod stack;
mod start;
mod thread;
mod timer;
mod wait;

pub use child::{WaitFor, wait_child};
pub use clone::{CloneRequest, clone_thread, fork, vfork};
pub use current::{Current, current, current_space};
pub use exec::exec;
pub use exit::{exit_process, exit_thread};
pub use id::{MAX_THREADS, Pid, Tid, all_processes, find_process, find_thread, thread_count};
pub use name::NAME_BYTES;
pub use process::{ExitStatus, Process};
pub use sched::{
    before_user_return, close_cpu, cpu_count, doze, reopen_cpu, set_affinity, sleep_until,
    timer_tick, usable_cpu_bits, vacate, yield_if_due, yield_now,
};
pub use signal::user_exception;
pub use start::{start_init, start_secondary};
pub use thread::Thread;
pub use timer::Deadline;
pub use wait::WaitQueue;
