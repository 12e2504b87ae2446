//! Cross-CPU calls and TLB shootdown for kernels and hypervisors.
//!
//! Every SMP kernel must *run this function on those CPUs* and *make those CPUs forget this translation*.
//! This crate is that subsystem: no `std`, no allocation, no architecture, no dependency.
//!
//! To adopt it: implement [`Platform`] for your kernel, make one `static` [`Shootdown`], call
//! [`Shootdown::handle_ipi`] from one interrupt vector, and [`Shootdown::online`] on each CPU.
//!
//! ```
//! # use shootdown::*;
//! # struct Kernel;
//! # // SAFETY: one CPU, no interrupts, no page tables.
//! # unsafe impl Platform for Kernel {
//! #     type IrqState = ();
//! #     fn current_cpu(&self) -> CpuId { CpuId::new(0) }
//! #     fn irq_save(&self) {}
//! #     fn irq_restore(&self, _: ()) {}
//! #     fn preempt_disable(&self) {}
//! #     fn preempt_enable(&self) {}
//! #     fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> { Ok(()) }
//! #     fn local_flush(&self, _: LocalFlush) {}
//! #     fn load_root(&self, _: Root) {}
//! #     fn now_ns(&self) -> u64 { 0 }
//! # }
//! # type Frame = u64;
//! static SHOOTDOWN: Shootdown<Kernel, 64> = Shootdown::new(Kernel);
//!
//! SHOOTDOWN.online(); // on each CPU
//! let space = AddressSpace::new(&SHOOTDOWN, Root(0x1000));
//! SHOOTDOWN.switch_to(None, &space);
//!
//! // Unmap a page: lock the page tables, clear the entry, ...
//! let mut batch = FlushBatch::<Frame, 32>::new();
//! batch.page(0x7000_0000, PageSize::SIZE_4K, 0x42).unwrap();
//! let ticket = SHOOTDOWN.submit_batch(&space, batch); // still under the lock
//! // ... unlock, then wait, then free.
//! for frame in ticket.wait() {
//!     assert_eq!(frame, 0x42);
//! }
//! # SHOOTDOWN.switch_away(&space, Root(0));
//! ```
//!
//! The invariants I1 to I13 that comments cite are listed in the project's `ARCHITECTURE.md`.

#![no_std]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]

mod atomic_mask;
mod call;
mod capacity;
mod cpu;
mod engine;
mod mask;
mod offline;
mod platform;
mod policy;
mod stats;
mod sync;
mod tlb;
mod trace;
mod watchdog;

/// What `shootdown-sim` puts under the engine (feature `sim`).
#[cfg(all(feature = "sim", not(loom)))]
pub mod sim {
    pub use crate::sync::simulated::{AtomicU64, Memory, Operation, Ordering, Plain, install};
}

#[doc(hidden)]
#[cfg(not(loom))]
pub use sync::shim;

pub use atomic_mask::AtomicCpuMask;
pub use call::{CallTicket, NotReady, PAYLOAD_BYTES, PollIdle, SlotsBusy, Wait};
pub use capacity::{Capacity, Cpus};
pub use cpu::CpuId;
pub use engine::Shootdown;
pub use mask::{CpuIter, CpuMask, CpuSet};
pub use platform::{IpiRefused, LocalFlush, Platform, RemoteFlush};
pub use policy::{Policy, Tags};
pub use stats::{Stats, WAIT_BUCKETS};
pub use tlb::{
    AddressSpace, Asid, AsidSlot, BatchFull, BatchTicket, FLUSH_CEILING_PAGES, FlushBatch,
    FlushRange, FlushRequest, FlushTicket, FreedTables, PageSize, PinnedWindows, Reclaimed, Root,
    SpaceId, TagEntries, TlbGen, WindowRoot, WrongCpu,
};
pub use trace::TraceEvent;
pub use watchdog::{Activity, Stall};
