//! LoongArch (LA64) building blocks for cross-CPU calls and TLB shootdown.
//!
//! A kernel's implementation of `shootdown::Platform` needs these things from the processor, and each has a module here:
//!
//! * [`ipi`]: interrupt other CPUs, take such interrupts, and start CPUs ([`Ipi`]);
//! * [`tlb`]: drop translations on this CPU, find out how many tags there are, and load roots with and without them ([`Tlb`], [`AsidWidth`]);
//! * [`mod@entry`]: global pairs, and faults that come of what is cached of an older entry;
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
//! For a kernel without preemption whose code and stacks are in a direct-mapped window. `current_core` and `now_ns` are the kernel's own; on the machine `I` is `ipi::Hardware` and `T` is `tlb::Hardware`.
//!
//! ```
//! use shootdown::tags::{Asid, AsidSlot, TagEntries};
//! use shootdown::{CpuId, CpuSet, IpiRefused, LocalFlush, Platform};
//! use shootdown_loongarch::irq::IrqState;
//! use shootdown_loongarch::tlb::{PageSize, Pages};
//! use shootdown_loongarch::{CoreId, Ipi, Tlb, Vector, ipi, tlb};
//! # fn current_core() -> CoreId { unimplemented!() }
//! # fn now_ns() -> u64 { unimplemented!() }
//!
//! const SHOOTDOWN: Vector = Vector::new(1).unwrap();
//!
//! struct Machine<I: ipi::Port, T: tlb::Port> {
//!     ipi: Ipi<I>,
//!     tlb: Tlb<T>,
//!     slots: [[AsidSlot; 32]; 64],
//! }
//!
//! fn core_of(cpu: CpuId) -> CoreId {
//!     CoreId::new(cpu.as_u32() as u16).expect("no more than 64")
//! }
//!
//! /// In the handler of ESTAT.IS bit 12: acknowledged before the engine looks (contract 6).
//! fn on_ipi<I: ipi::Port + Sync, T: tlb::Port + Sync>(
//!     machine: &Machine<I, T>,
//!     engine: impl FnOnce(),
//! ) {
//!     if machine.ipi.acknowledge() & SHOOTDOWN.mask() != 0 {
//!         engine(); // `handle_ipi`
//!     }
//! }
//!
//! // SAFETY: contracts as numbered at the trait.
//! // 1. CSR.CPUID is the number of the CPU. 2. CRMD.IE. 3. and 4. `Tlb`, with no root but those that the engine loads. 5. `Ipi` has the barrier. 6. `on_ipi`. 7. not used. 8. `slots` has always the same
//! // number. 9. a panic ends the machine. 10. not used. 11. direct-mapped. 12. nobody else writes ASID and PGDL.
//! unsafe impl<I: ipi::Port + Sync, T: tlb::Port + Sync> Platform for Machine<I, T> {
//!     type Cpus = shootdown::Cpus<64>;
//!     type IrqState = IrqState;
//!     fn current_cpu(&self) -> CpuId {
//!         CpuId::new(current_core().as_u16().into())
//!     }
//!     fn irq_save(&self) -> IrqState {
//!         self.tlb.port().irq_save()
//!     }
//!     unsafe fn irq_restore(&self, before: IrqState) {
//!         // SAFETY: 1. of the matching `irq_save`, on this CPU.
//!         unsafe { self.tlb.port().irq_restore(before) };
//!     }
//!     fn preempt_disable(&self) {}
//!     unsafe fn preempt_enable(&self) {}
//!     fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
//!         self.ipi.send(core_of(target), SHOOTDOWN);
//!         Ok(())
//!     }
//!     fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
//!         self.ipi.send_many(targets.iter().map(core_of), SHOOTDOWN);
//!         Ok(())
//!     }
//!     fn local_flush(&self, operation: LocalFlush) {
//!         match operation {
//!             LocalFlush::Pages(range, _) => {
//!                 let shift = range.page_size().bytes().trailing_zeros() as u8;
//!                 let size = PageSize::from_shift(shift).expect("a page size");
//!                 self.tlb.flush_pages(Pages::new(range.start(), size, range.page_count()));
//!             }
//!             LocalFlush::Space => self.tlb.flush_space(),
//!             LocalFlush::All => self.tlb.flush_all(),
//!         }
//!     }
//!     unsafe fn load_root(&self, root: u64) {
//!         // SAFETY: 1. `Root::new` was told that the tables stay. 2. direct-mapped.
//!         unsafe { self.tlb.load_root(root) };
//!     }
//!     fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
//!         let count = usize::from(self.tlb.width().slots()).min(32);
//!         &self.slots[cpu.index()][..count]
//!     }
//!     unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
//!         let asid = tlb::Asid::new(asid.as_u16()).expect("no more than 32");
//!         let entries = match entries {
//!             TagEntries::Keep => tlb::TagEntries::Keep,
//!             TagEntries::Drop => tlb::TagEntries::Drop,
//!         };
//!         // SAFETY: 1. and 2. as above. 3. the engine says so. 4. one of `asid_slots`, or none.
//!         unsafe { self.tlb.load_tagged_root(root, asid, entries) };
//!     }
//!     fn now_ns(&self) -> u64 {
//!         now_ns()
//!     }
//! }
//! ```
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
