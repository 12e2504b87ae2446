//! x86-64 building blocks for cross-CPU calls and TLB shootdown.
//!
//! A kernel's implementation of `shootdown::Platform` needs these things from the processor, and
//! each has a module here:
//!
//! * [`apic`]: interrupt other CPUs, many with one write ([`LocalApic`], or [`IpiSender`] where the host has
//!   the controllers running; [`ApicMap`]);
//! * [`tlb`]: drop translations on this CPU, load roots with and without tags ([`Tlb`], [`Pcid`]);
//! * [`pv`]: have a hypervisor flush vCPUs;
//! * [`rar`]: have other processors flush without an interrupt (Intel, unproven on silicon);
//! * [`guest`]: enter guests under tags of their own ([`svm`]; [`vmx`], unproven on silicon);
//! * [`cache`]: ask for cache lines early;
//! * [`features`], [`processor`]: know what the processor has, and which one it is ([`Features`]);
//! * [`irq`]: keep this CPU from being interrupted meanwhile.
//!
//! The crate allocates nothing, waits for nothing without a bound, and keeps no state of its own
//! except in an [`ApicMap`] that the kernel places in a `static`.
//!
//! # What touches the machine, and what does not
//!
//! Every sequence of register accesses whose *order* matters (the two halves of the ICR, the fence
//! before it, the toggling of CR4.PGE, the tag in CR3) is written against a trait, [`apic::Port`] or
//! [`tlb::Port`].
//! The implementations for real hardware are a few lines of assembler; the tests run the same
//! sequences against a recorder on the host.
//!
//! # Privilege
//!
//! Code here runs at CPL 0. At any other level the processor raises #GP, which a hosted process
//! sees as a fatal signal; constructors of hardware access are therefore `unsafe` and say so. What a kernel
//! needs all the time (interrupts for others, flushes) is safe once such a value exists; what can break
//! memory safety (roots, modes, registers by number, INIT, start-up and NMI) stays `unsafe`.
//!
//! # Example
//!
//! The part of a kernel that interrupts a set of CPUs:
//!
//! ```
//! use core::ptr::NonNull;
//! use shootdown_x86::{ApicId, ApicMap, ApicMode, Delivery, FadtFlags, Features, LocalApic, SendError, Vector};
//!
//! const SHOOTDOWN_VECTOR: Vector = Vector::new(0xf0).unwrap();
//! const SPURIOUS_VECTOR: Vector = Vector::new(0xff).unwrap();
//! static CPUS: ApicMap<16> = ApicMap::new();
//!
//! /// On the boot CPU. `ids` and `firmware` are from ACPI's tables (MADT, FADT); `page` is the mapped xAPIC page.
//! unsafe fn detect(ids: &[ApicId], firmware: FadtFlags, page: NonNull<u8>) -> LocalApic {
//!     let mode = ApicMode::detect(&Features::detect());
//!     CPUS.configure(Delivery::choose(mode, ids.len(), firmware)).expect("nobody inserted yet");
//!     for (cpu, &id) in ids.iter().enumerate() {
//!         CPUS.insert(cpu, id).expect("the firmware's ids are distinct");
//!     }
//!     match mode {
//!         // SAFETY: the kernel mapped the page uncacheable; every CPU runs `start` first.
//!         ApicMode::XApic => unsafe { LocalApic::new_xapic(page) },
//!         // SAFETY: CPUID has x2APIC; every CPU runs `start` first.
//!         ApicMode::X2Apic => unsafe { LocalApic::new_x2apic() },
//!     }
//! }
//!
//! /// On every CPU, interrupts off, its IDT loaded.
//! unsafe fn start(apic: &LocalApic, cpu: usize) {
//!     // SAFETY: interrupts are off, the IDT has both vectors, flat ids come from the one map.
//!     unsafe { apic.enable(SPURIOUS_VECTOR, CPUS.flat_id(cpu)) };
//!     CPUS.set_online(cpu);
//! }
//!
//! fn interrupt(apic: &LocalApic, this_cpu: usize, targets: &[u64]) -> Result<(), SendError> {
//!     apic.send_many(&CPUS, this_cpu, targets, SHOOTDOWN_VECTOR)
//! }
//! ```
//!
//! # A whole platform
//!
//! For a kernel without PCIDs and preemption. `apic` and `tlb` are values that boot has made (above, and [`Tlb::new`]), `current_cpu` and `now_ns` the
//! kernel's own.
//!
//! ```
//! use shootdown::{watch::Stall, CpuId, CpuSet, FreedTables, IpiRefused, LocalFlush, Platform, Root};
//! use shootdown_x86::{ApicMap, LocalApic, Tlb, Vector, apic::Destination, irq, irq::IrqState, tlb::Depth};
//! # const SHOOTDOWN_VECTOR: Vector = Vector::new(0xf0).unwrap();
//! # static CPUS: ApicMap<16> = ApicMap::new();
//! # fn apic() -> &'static LocalApic { unimplemented!() }
//! # fn tlb() -> &'static Tlb { unimplemented!() }
//! # fn current_cpu() -> u32 { unimplemented!() }
//! # fn now_ns() -> u64 { unimplemented!() }
//! # fn print_without_lock(_: &Stall) {}
//!
//! struct Machine;
//!
//! // SAFETY: contracts as numbered at the trait.
//! // 1. a register of the CPU has its number. 2. CLI. 3. INVLPG, and what `flush_pages` does for freed tables; CR3 and CR4.PGE the rest. 4. CR3 drops all
//! // that is not global, and user pages never are. 5. `LocalApic` fences. 6. interrupts stay pending; the vector calls `handle_ipi`. 7. and
//! // 8. nothing of that is used. 9. a panic ends the machine. 10. a hint. 11. every root has the
//! // kernel's half. 12. nobody else writes CR3.
//! unsafe impl Platform for Machine {
//!     type Cpus = shootdown::Cpus<64>;
//!     type IrqState = IrqState;
//!     fn current_cpu(&self) -> CpuId {
//!         CpuId::new(current_cpu())
//!     }
//!     fn irq_save(&self) -> IrqState {
//!         irq::save()
//!     }
//!     unsafe fn irq_restore(&self, before: IrqState) {
//!         // SAFETY: 1. of the matching `irq_save`, on this CPU.
//!         unsafe { irq::restore(before) };
//!     }
//!     fn preempt_disable(&self) {}
//!     unsafe fn preempt_enable(&self) {}
//!     fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
//!         let id = CPUS.id(target.index()).expect("online, so in the map");
//!         let sent = apic().send(Destination::Physical(id), SHOOTDOWN_VECTOR);
//!         sent.map_err(|_| IpiRefused)
//!     }
//!     fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
//!         let here = current_cpu() as usize;
//!         let sent = apic().send_many(&CPUS, here, targets.words(), SHOOTDOWN_VECTOR);
//!         sent.map_err(|_| IpiRefused)
//!     }
//!     fn local_flush(&self, operation: LocalFlush) {
//!         match operation {
//!             LocalFlush::Pages(range, freed) => {
//!                 let depth = match freed {
//!                     FreedTables::No => Depth::Leaf,
//!                     FreedTables::Yes => Depth::Tables,
//!                 };
//!                 tlb().flush_pages(range.start(), range.page_size().bytes(), range.page_count(), depth);
//!             }
//!             LocalFlush::Space => tlb().flush_non_global(),
//!             LocalFlush::All => tlb().flush_all(),
//!         }
//!     }
//!     unsafe fn load_root(&self, root: u64) {
//!         // SAFETY: `Root::new` was told that the tables map the kernel, and stay.
//!         unsafe { tlb().load_root(root) };
//!     }
//!     fn prefetch_write(&self, address: usize) {
//!         shootdown_x86::cache::prefetch_write(address);
//!     }
//!     fn now_ns(&self) -> u64 {
//!         now_ns()
//!     }
//!     fn on_stall(&self, stall: &Stall) {
//!         print_without_lock(stall);
//!     }
//! }
//! ```
//!
//! With PCIDs, `load_tagged_root` and `asid_slots` come to it; an `Asid` of the engine is the [`Pcid`] of the same number, and its `TagEntries` is
//! [`tlb::TagEntries`] by another name: `match` one into the other. With page-table isolation `flush_user_side` comes to it
//! ([`Tlb::flush_user_side`]).
//!
//! # Manuals
//!
//! "SDM" is the *Intel 64 and IA-32 Architectures Software Developer's Manual*, "APM" the *AMD64
//! Architecture Programmer's Manual*. Both renumber their chapters between editions, so they are
//! cited by volume and by the title of the section.
#![no_std]
#![deny(missing_docs)]

#[cfg(test)]
extern crate std;

pub mod apic;
pub mod cache;
mod cpuid;
pub mod features;
pub mod guest;
pub mod irq;
pub mod msr;
pub mod processor;
pub mod pv;
pub mod rar;
pub mod svm;
pub mod tlb;
pub mod vmx;

pub use apic::{
    ApicId, ApicMap, ApicMode, Delivery, Destination, FadtFlags, IpiSender, LocalApic, SendError,
    Vector,
};
pub use features::{Features, Hypervisor};
pub use irq::IrqState;
pub use tlb::{Pcid, PcidSupport, Tlb};
