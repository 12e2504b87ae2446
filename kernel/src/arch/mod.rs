//! What the processor wants: descriptor tables, traps, per-CPU data, switching, user memory.

pub mod context;
pub mod exit;
pub mod fpu;
pub mod fsbase;
pub mod irq;
pub mod paging;
pub mod percpu;
pub mod trap;
pub mod uaccess;
