//! What the processor wants: descriptor tables, traps, per-CPU data, switching, user memory.
//!
//! It may know nothing of the kernel but `addr`, `cpus` and `errno`: whom it is to call, hooks tell it.

pub mod apic;
pub mod context;
pub mod cpu;
#[cfg(feature = "isolation")]
pub mod cr3;
pub mod descriptors;
pub mod exit;
pub mod extable;
pub mod fpu;
pub mod fsbase;
mod idt;
#[cfg(feature = "isolation")]
pub mod isolation;
pub mod paging;
pub mod percpu;
pub mod smap;
pub mod spurious;
pub mod stacks;
pub mod steal;
pub mod svm;
pub mod timer;
pub mod tlb;
pub mod top;
pub mod trap;
pub mod tsc;
pub mod uaccess;
