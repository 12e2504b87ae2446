//! AArch64 building blocks for cross-CPU calls and TLB shootdown.
//!
//! A kernel's implementation of `shootdown::Platform` needs these things from the processor, and each has a module here:
//!
//! * [`gic`]: interrupt other CPUs, many with one write ([`Gic3`], [`Gic2`]);
//! * [`tlb`]: drop translations on this CPU or on all, load roots with and without tags ([`Tlb`], [`Broadcast`](tlb::Broadcast));
//! * [`features`], [`errata`]: know what the processor has, and what it does not do right;
//! * [`irq`]: keep this CPU from being interrupted meanwhile, and idle.
//!
//! The crate allocates nothing, waits for nothing without a bound, and keeps no state of its own except in maps that the kernel places in a `static`.
//!
//! # What touches the machine, and what does not
//!
//! Every sequence of operations whose *order* matters (barriers, TLBI, TTBR0_EL1, SGIs) is written against a trait, [`gic::Port`], [`tlb::Port`] or [`irq::Port`]. The implementations for real hardware
//! are a few lines of assembler, and exist where the target is AArch64; the tests run the same sequences on an emulated processor on the host.
//!
//! # Privilege
//!
//! Code here runs at EL1, or at EL2 with VHE. Elsewhere the instructions are undefined; constructors of hardware access are therefore `unsafe` and say so. What a kernel needs all the time (interrupts for others, flushes) is
//! safe once such a value exists; what can break memory safety (roots) stays `unsafe`.
//!
//! # A whole platform
//!
//! `examples/platform.rs` has one, with tags and broadcast.
//!
//! # Manuals
//!
//! "DDI 0487" is the *Arm Architecture Reference Manual for A-profile architecture*, "IHI 0069" the *Arm Generic Interrupt Controller Architecture Specification* of GICv3 and v4, "IHI 0048" that of GICv2.
#![no_std]
#![warn(missing_docs)]

pub mod errata;
pub mod features;
pub mod gic;
pub mod irq;
pub mod tlb;

pub use errata::{Errata, Midr};
pub use features::{Features, IdRegisters};
pub use gic::{Affinity, AffinityMap, Gic2, Gic3, SendError, Sgi};
pub use irq::IrqState;
pub use tlb::{Asid, AsidBits, Tlb};
