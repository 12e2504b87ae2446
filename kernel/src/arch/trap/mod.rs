//! What the processor tells of exceptions, interrupts and system calls: registers and vectors.
//!
//! It may not know who handles them: that is [`traps`](crate::traps).

mod frame;
pub mod vectors;

pub use frame::TrapFrame;
