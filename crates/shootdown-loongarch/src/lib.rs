//! LoongArch (LA64) building blocks for cross-CPU calls and TLB shootdown.
//!
//! A kernel's implementation of `shootdown::Platform` needs these things from the processor, and each has a module here:
//!
//! * [`ipi`]: interrupt other CPUs, take such interrupts, and start CPUs ([`Ipi`]);
//! * [`tlb`]: drop translations on this CPU, find out how many tags there are, and load roots with and without them ([`Tlb`], [`AsidWidth`]);
//! * [`mod@entry`]: empty global pages, and faults that come of what is cached of an older entry;
//! * [`walk`], `refill`: how the tables are built, and a handler for refills that counts them;
//! * [`features`]: know what the processor has ([`Features`]);
//! * [`irq`], `barrier`: keep this CPU from being interrupted, wait for an interrupt, barriers.
//!
//! The crate allocates nothing, waits for nothing without a bound, and keeps no state of its own.
//!
//! Every sequence of machine operations whose *order* matters is written against a trait, [`ipi::Port`] or [`tlb::Port`]. The implementations for real hardware, `ipi::Hardware` and `tlb::Hardware`, are a few lines of
//! assembler and exist on LoongArch only, as do `barrier`, `refill` and most of [`irq`]; everything else builds everywhere, and is tested on the host.
//!
//! # Privilege
//!
//! Code here runs at PLV 0. Elsewhere its instructions raise an exception; constructors of hardware access are therefore `unsafe` and say so.
//!
//! # A whole platform
//!
//! `examples/platform.rs` is one, for a kernel without preemption whose code and stacks are in a direct-mapped window.
//!
//! `Pages` of the kernel need no more than this if they are global, both of a pair: then say `KERNEL_PAGES_ARE_GLOBAL`. `synchronise_here` is `barrier::instructions`.
//!
//! # Manuals
//!
//! "Reference manual vol. 1" is Loongson's *LoongArch Reference Manual, Volume 1: Basic Architecture*, by the numbers and titles of the sections in versions 1.00 to 1.10. It says nothing of how
//! stores to page tables are ordered before walks; the crate has `DBAR 0`, which waits until they are complete, and is stronger than what Linux has (`DBAR 0b11000` in `set_pte`, for global pages).
#![no_std]
#![warn(missing_docs)]

#[cfg(target_arch = "loongarch64")]
pub mod barrier;
pub mod entry;
pub mod features;
pub mod ipi;
pub mod irq;
#[cfg(target_arch = "loongarch64")]
pub mod refill;
pub mod tlb;
pub mod walk;

pub use features::Features;
pub use ipi::{CoreId, Ipi, Vector};
pub use irq::IrqState;
pub use tlb::{Asid, AsidWidth, Tlb};
