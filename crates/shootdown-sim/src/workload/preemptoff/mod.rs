//! Table T3: how long a CPU cannot be given to another task, where low-priority threads unmap and exit on all CPUs while
//! CPUs keep interrupts off for heavy-tailed times.
//!
//! * [`Load`]: what the threads and the devices do, every figure with its origin;
//! * `kernel`: tasks on CPUs, wake-ups, a periodic FIFO thread; `cpu`: queues, time slices, devices that interrupt;
//! * `program`: what the threads do, on the engine;
//! * `spans`: the tracer: how long preemption or interrupts were off, and for what;
//! * [`Preemptoff`]: one row; [`Findings`]: what it measured.
//!
//! The engine under all rows is the same source. [`System`] says what the kernel around it does differently, and the part
//! of the published system that our engine does not have is a model here, named as such.

mod cpu;
mod findings;
mod kernel;
mod load;
mod program;
mod row;
mod spans;

pub use findings::{Counts, Findings, PUBLISHED_PREEMPTOFF};
pub use load::{LOAD_FIGURES, Load, LoadFigure};
pub use row::{Preemptoff, System};
pub use spans::Maxima;
