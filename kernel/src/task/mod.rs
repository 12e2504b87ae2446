//! Threads, processes and scheduling.
//!
//! | file | what |
//! |---|---|
//! | `thread`, `state`, `process`, `group`, `id`, `limits`, `usage` | what there is, and its numbers |
//! | `sched`, `scheduling`, `cpu`, `queue`, `affinity`, `timer` | who runs where, who sleeps how long |
//! | `futex`, `futex_key`, `robust`, `wait` | sleeping for something to happen |
//! | `signal`, `alarm`, `job` | signals, exceptions of user mode, handlers; timers that send signals; processes that stop |
//! | `idle` | what CPUs do that have nothing to do |
//! | `start`, `clone`, `exec`, `child`, `exit` | life and death |
//!
//! Lock order: alarms, then process tables (`members`, `children`, `files`, `actions`), then wait queues and
//! futex buckets, then timers, then ready queues. A futex bucket alone is held over access to user
//! memory, and only over such that does not sleep. Ready and timer queues are for interrupt handlers too.
//!
//! Kernel code is preempted like any other: between two instructions with interrupts on and no spin lock held the
//! thread may lose its CPU and go on elsewhere. What belongs to a CPU is used with interrupts or preemption off.
//!
//! It may not know system calls, traps, torture or benches. With `fs`, `zerocopy` and `hotplug` it is one circle
//! (ARCHITECTURE.md, "Floors of the kernel").

mod affinity;
pub mod alarm;
mod child;
mod clone;
mod cpu;
mod current;
mod exec;
mod exit;
pub mod futex;
mod futex_key;
mod group;
mod id;
mod idle;
mod job;
mod kernel_thread;
mod limits;
mod name;
mod process;
mod queue;
mod robust;
mod sched;
mod scheduling;
pub mod signal;
mod stack;
mod start;
mod state;
mod thread;
mod timer;
mod usage;
mod wait;
mod wake_budget;

pub use child::{WaitFor, WaitOptions, wait_child};
pub use clone::{CloneRequest, clone_process, clone_thread, fork, vfork};
pub use cpu::Mode;
pub use current::{
    Current, current, current_sleeper, current_space, in_space_of, with_current_space,
};
pub use exec::exec;
pub use exit::{end_machine_with, exit_process, exit_thread};
pub use group::{members, set_group, start_session};
pub use id::{MAX_THREADS, Pid, Tid, all_processes, find_process, find_thread, thread_count};
pub use idle::{IdleMode, choose_idle_mode, idle, idle_mode, set_idle_mode};
pub use job::JobNews;
pub use kernel_thread::start_kernel_thread;
pub use limits::Limit;
pub use name::NAME_BYTES;
pub use process::{ExitStatus, Process};
pub use sched::{
    before_user_return, catch_up, catch_up_before_access, change_space, close_cpu, close_window,
    cpu_count, defer_flushes, doze, expire_deadlines, hand_over, load_own_root, open_window,
    park_uninterrupted, preempt, preempt_interrupted, refresh_windows, reopen_cpu, set_affinity,
    set_scheduling, sleep_until, take_region, tell_server, timer_tick, unpark, usable_cpu_bits,
    vacate, yield_now,
};
pub use scheduling::{Priority, Rule, SLICE_NS, Scheduling};
pub use signal::{UserException, user_exception};
pub use start::{start_init, start_scheduling, wait_for_other_cpus};
pub use thread::{Thread, ThreadList};
pub use timer::Deadline;
pub use usage::Usage;
pub use wait::WaitQueue;
