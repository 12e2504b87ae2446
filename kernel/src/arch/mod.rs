//! What the processor wants: descriptor tables, traps, per-CPU data, switching, user memory.

pub mod apic;
pub mod context;
pub mod cpu;
mod descriptors;
mod entry;
pub mod exit;
mod extable;
pub mod fpu;
pub mod fsbase;
mod idt;
pub mod irq;
pub mod paging;
pub mod percpu;
pub mod smap;
pub mod stacks;
pub mod timer;
pub mod tlb;
pub mod trap;
pub mod uaccess;
