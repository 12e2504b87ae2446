//! Exceptions, interrupts and system calls: from the stubs in `entry.s` to the handlers.

mod dispatch;
mod fault;
mod frame;
pub mod vectors;

pub(crate) use dispatch::sanitize;
pub use dispatch::{syscall, trap, trap_paranoid};
pub use frame::{TrapFrame, UserException};
