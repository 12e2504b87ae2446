//! What the processor tells of exceptions, interrupts and system calls: registers and vectors.

mod frame;
pub mod vectors;

pub use frame::TrapFrame;
