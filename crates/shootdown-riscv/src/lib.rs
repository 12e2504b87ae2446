//! RISC-V building blocks for cross-CPU calls and TLB shootdown, for kernels in supervisor mode of a 64-bit hart.
//!
//! A kernel's implementation of `shootdown::Platform` needs these things from the processor, and each has a module here:
//!
//! * [`ipi`]: interrupt other harts, by SBI, by IMSICs or by an ACLINT ([`Ipi`]); have the firmware fence for them ([`ipi::RemoteFences`]);
//! * [`tlb`]: drop translations on this hart, load roots with and without ASIDs ([`Tlb`]), retry spurious faults;
//! * [`features`]: what harts have, and which ones they are ([`Features`]);
//! * [`irq`]: keep this hart from being interrupted meanwhile, wait for an interrupt.
//!
//! The crate allocates nothing, waits for nothing without a bound (`RemoteFences` waits for the firmware), and keeps no state of its own except in the maps that the kernel places in a `static`.
//!
//! # What touches the machine, and what does not
//!
//! Every sequence of operations whose *order* matters is written against a trait: [`tlb::Port`], [`ipi::Port`], [`irq::Port`]. The implementation for real harts, `Hardware`, is
//! one instruction a method, and exists on `riscv64` targets only; the rest builds anywhere. The tests run the same sequences on an emulated hart, which walks tables at any moment and forgets nothing that it may keep.
//! `Hardware` has an `unsafe` constructor: its instructions are illegal in user mode. What a kernel needs all the time is safe once the value exists; what can break memory safety (roots, calls of the firmware, stores to devices) stays `unsafe`.
//!
//! # A whole platform
//!
//! `examples/platform.rs` is one, with tags, for a kernel that does not preempt.
//!
//! # Manuals
//!
//! "Privileged" is *The RISC-V Instruction Set Manual, Volume II: Privileged Architecture* (as in the repository `riscv/riscv-isa-manual` in 2024 and later, which has Svvptc), "Unprivileged" its volume I, "SBI" the *RISC-V Supervisor Binary Interface Specification*
//! (2.0). The *Advanced Interrupt Architecture* is cited by name (1.0). Sections are cited by their titles.
#![no_std]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

pub mod features;
#[cfg(target_arch = "riscv64")]
mod hardware;
pub mod ipi;
pub mod irq;
pub mod tlb;

pub use features::{Features, Processor};
#[cfg(target_arch = "riscv64")]
pub use hardware::Hardware;
pub use ipi::{HartId, HartMap, Ipi, SendError, Way};
pub use irq::IrqState;
pub use tlb::{Asid, AsidBits, Mode, Tlb};
