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
//! #     type Cpus = Cpus<64>;
//! #     type IrqState = ();
//! #     fn current_cpu(&self) -> CpuId { CpuId::new(0) }
//! #     fn irq_save(&self) {}
//! #     unsafe fn irq_restore(&self, _: ()) {}
//! #     fn preempt_disable(&self) {}
//! #     unsafe fn preempt_enable(&self) {}
//! #     fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> { Ok(()) }
//! #     fn local_flush(&self, _: LocalFlush) {}
//! #     unsafe fn load_root(&self, _: u64) {}
//! #     fn now_ns(&self) -> u64 { 0 }
//! # }
//! # type Frame = u64;
//! static SHOOTDOWN: Shootdown<Kernel> = Shootdown::new(Kernel);
//! static MEMORY: [CpuMemory<Kernel>; 64] = [const { CpuMemory::new() }; 64];
//!
//! SHOOTDOWN.attach(CpuId::new(0), &MEMORY); // once
//! SHOOTDOWN.online(); // on each CPU
//! // SAFETY: these page tables map the kernel, and stay until the space is dropped.
//! let root = unsafe { Root::new(0x1000) };
//! let space = AddressSpace::new(&SHOOTDOWN, root);
//! SHOOTDOWN.switch_to(None, &space);
//!
//! // Unmap a page: lock the page tables, clear the entry, ...
//! let mut batch = FlushBatch::<Frame, 32>::new(&space);
//! batch.page(0x7000_0000, PageSize::SIZE_4K, 0x42).unwrap();
//! let ticket = SHOOTDOWN.submit_batch(&space, batch); // still under the lock
//! // ... unlock, then wait, then free.
//! for frame in ticket.wait() {
//!     assert_eq!(frame, 0x42);
//! }
//! # // SAFETY: never loaded.
//! # SHOOTDOWN.switch_away(&space, unsafe { KernelRoot::new(0x2000) });
//! ```
//!
//! # What is for whom
//!
//! | for | names |
//! |---|---|
//! | every host | [`Platform`] with [`LocalFlush`] and [`IpiRefused`]; [`Shootdown`]: `attach`, `online`, `handle_ipi`, `poll`, `call_one`, `call_many`; [`CallTargets`], [`Cpus`], [`CpuMemory`], [`CpuId`], [`CpuMask`], [`CpuSet`] |
//! | unmapping | [`FlushGuard`], or [`FlushBatch`] and its [`FlushTicket`]; [`FlushScope`], [`FlushRange`], [`FlushRanges`], [`PageSize`], [`FreedTables`]; module [`flushes`] |
//! | user address spaces | [`AddressSpace`], [`Root`], [`KernelRoot`], [`SpaceId`]; `switch_to`, `switch_away`; module [`user_memory`] for lazy mode |
//! | calls that wait later, or for nobody | `submit`, `try_post`, `post_data`; module [`calls`] |
//! | idle loops that spin | `poll_idle`; [`calls::PollIdle`] |
//! | measuring and watching | [`Policy`]; module [`watch`] |
//! | a context switch that loads the root itself; firmware, sleep | module [`host_roots`] |
//! | hardware tags | module [`tags`] |
//! | few: hypervisors | module [`guest`], and [`tags`] |
//! | few: flushes without an interrupt | module [`remote`], and [`tags`] where it names them |
//! | few: windows of servers | module [`windows`] |
//!
//! `examples/kernel.rs` keeps all of it in one module of a kernel that learns at boot how many CPUs there are.
//!
//! [The project's book](../../book/index.html) has the rest (the link works where `cargo doc` and `mdbook build docs` have written into the same
//! `target`; otherwise it is `docs/` of the repository): how to adopt the engine in an afternoon, the contracts, one shootdown step by step, what was measured, and where others are ahead. The invariants I1 to I17 that comments cite are listed in `ARCHITECTURE.md`.

#![no_std]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]

#[cfg(all(feature = "sim", target_os = "none"))]
compile_error!(
    "the feature `sim` hands every atomic access to a simulated machine, and no kernel is one: find who enables it by `cargo tree -e features -i shootdown`"
);

mod atomic_mask;
mod call;
mod capacity;
mod config;
mod cpu;
mod dead;
mod engine;
mod guard;
mod handle;
mod mask;
mod memory;
mod offline;
mod own_set;
mod platform;
mod policy;
mod quiet;
mod stats;
mod sync;
mod tlb;
mod trace;
mod watchdog;

/// What `shootdown-sim` puts under the engine (feature `sim`).
#[cfg(all(feature = "sim", not(loom)))]
pub mod sim {
    pub use crate::sync::simulated::{AtomicU64, Memory, Operation, Ordering, Plain, install};
    pub use crate::sync::start::Start;
    pub use crate::sync::stopped::{Unfinished, place_of};
}

#[doc(hidden)]
#[cfg(not(loom))]
pub use sync::shim;

pub use call::CallTargets;
pub use capacity::{Capacity, Cpus};
pub use config::Config;
pub use cpu::CpuId;
pub use engine::Shootdown;
pub use mask::{CpuMask, CpuSet};
pub use memory::CpuMemory;
pub use platform::{IpiRefused, LocalFlush, Platform};
pub use policy::Policy;
pub use tlb::{
    AddressSpace, FlushBatch, FlushGuard, FlushRange, FlushRanges, FlushScope, FlushTicket,
    FreedTables, KernelRoot, PageSize, Root, SpaceId,
};

/// What calls return, and calls whose memory is the caller's.
pub mod calls {
    pub use crate::call::{
        CallData, CallTicket, NotReady, PAYLOAD_BYTES, PollIdle, PostRefused, SlotsBusy,
        SubmitRefused, Wait,
    };
}

/// Kicks, barriers, and functions that CPUs run wherever they poll.
pub mod control {
    pub use crate::call::{Absent, KickTicket, Rendezvous};
    pub use crate::dead::Unserved;
    pub use crate::handle::CpuControl;
}

/// What batches return, and the limits of ranges.
pub mod flushes {
    pub use crate::tlb::{BatchFull, FLUSH_CEILING_PAGES, RANGES, Reclaimed};
}

/// Virtual machines: a space whose root is nested, and those that run in it. For hypervisors.
pub mod guest {
    pub use crate::tlb::{GuestEntry, GuestExit, GuestSpace, Vcpu};
}

/// Roots that the host loads itself: in its own context switch, or for firmware, sleep and trampolines.
pub mod host_roots {
    pub use crate::handle::HostRoots;
}

/// Flushes without an interrupt: what a [`Platform`] with a back end is asked, and tags that are the same on all CPUs.
pub mod remote {
    pub use crate::platform::RemoteFlush;
    pub use crate::tlb::{FlushRequest, GlobalTags, RemoteTargets, TagSet, TlbGen};
}

/// Flushes that ask those CPUs only that can have translations of what has changed, where threads of a process use memory of their own.
pub mod reach {
    pub use crate::handle::Reach;
    pub use crate::tlb::{ReachRoot, Region};
}

/// One flush for pages of many spaces, as the reclaim of memory needs it; and a flush that another task waits for.
pub mod reclaim {
    pub use crate::tlb::{PendingFlush, Reclaim};
}

/// What else keeps translations: IOMMUs that share page tables, devices with TLBs of their own, tables that software makes from these.
pub mod secondary {
    pub use crate::handle::SecondaryTlbs;
    pub use crate::tlb::{Held, SecondaryFailed, SecondaryFlush};
}

/// Hardware tags (PCIDs, ASIDs): which a [`Platform`] has, and how a [`Policy`] uses them.
pub mod tags {
    pub use crate::policy::Tags;
    pub use crate::tlb::{Asid, AsidSlot, TagEntries};
}

/// When a CPU uses user memory and when it does not: lazy mode, deferral, split tags, and what NMI handlers ask. Walks of page tables without their lock.
pub mod user_memory {
    pub use crate::handle::UserMemory;
    pub use crate::tlb::Walk;
}

/// What a host may watch: counters, [events](watch::TraceEvent), and what a CPU [does](watch::Activity) while a wait [stalls](watch::Stall).
pub mod watch {
    pub use crate::handle::Watcher;
    pub use crate::stats::{Stats, WAIT_BUCKETS};
    pub use crate::trace::TraceEvent;
    pub use crate::watchdog::{Activity, DEFAULT_STALL_NS, FoundBy, Stall};
}

/// Mappings of one CPU that no other needs to flush: for servers that map their clients' pages.
pub mod windows {
    pub use crate::handle::Windows;
    pub use crate::tlb::{PinnedWindows, WindowRoot, WrongCpu};
}
