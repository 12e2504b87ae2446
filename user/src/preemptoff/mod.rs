//! Workload T3: how long a thread of high priority waits to run while others unmap memory on all CPUs.
//!
//! An unmap has to be known on the CPUs that may have cached the translation. A kernel that waits for them with preemption
//! off keeps its own CPU, too, for as long as the slowest of them: and CPUs that have interrupts off, as drivers do, are
//! slow. So low-priority threads map, touch and unmap on every CPU and fork children that exit; some CPUs keep interrupts
//! off for heavy-tailed times; and one thread of `SCHED_FIFO` wakes up by the clock and looks at how late it is.
//!
//! The load is a process of its own: its page faults, locks and copies on write do not touch the thread that measures.
//!
//! * [`options`]: what only this program is told;
//! * [`tail`]: the times for which interrupts are kept off;
//! * [`board`]: the memory by which the processes talk to each other;
//! * [`worker`]: the threads that map and unmap, and how they would notice a stale translation;
//! * [`keeper`]: the threads that keep interrupts off;
//! * [`load`]: the process of both;
//! * [`alarm`]: the thread that measures;
//! * [`tracer`]: the kernel's longest spans with preemption off;
//! * [`spans`]: what a row has of them;
//! * [`mod@bench`]: options, and what differs from other [courses](crate::course).

pub mod alarm;
pub mod bench;
pub mod board;
pub mod keeper;
pub mod load;
pub mod options;
pub mod spans;
pub mod tail;
pub mod tracer;
pub mod worker;

pub use bench::Preemptoff;
