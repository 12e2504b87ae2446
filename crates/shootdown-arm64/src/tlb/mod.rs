//! Dropping translations, and loading roots. "D8.16" and the like are sections of DDI 0487 (issue K or L), the *Arm Architecture Reference Manual for A-profile architecture*.
//!
//! [`Tlb`] acts on the calling CPU, [`Broadcast`] on all CPUs of the inner shareable domain. What they reach (the own tag is that of the loaded TTBR0_EL1):
//!
//! | | instruction | own tag | other tags | global |
//! |---|---|---|---|---|
//! | [`Tlb::flush_pages`], [`Depth::Leaf`] | VAALE1, RVAALE1 | pages | pages | pages |
//! | [`Tlb::flush_pages`], [`Depth::Tables`] | VAAE1, RVAAE1 | pages, tables that lead to them | the same | pages |
//! | [`Tlb::flush_space`], [`Tlb::flush_tag`] | ASIDE1 | all, or nothing | nothing, or all of one | nothing |
//! | [`Tlb::flush_all`] | VMALLE1 | all | all | all |
//! | [`Tlb::load_tagged_root`] | ASIDE1 | by choice | nothing | nothing |
//! | [`Broadcast::begin`] | the same with IS; VAE1IS for a global tag | on every CPU | | |
//!
//! # Barriers
//!
//! * **DSB ISH before.** Walkers see a store to page tables once a DSB has completed (D8.2, "Ordering of memory accesses from translation table walks"). Stores of this CPU would need DSB ISHST. But a CPU
//!   flushes for changes of *others*, too, which it has learnt of by a load; ISHST orders no loads (B2.6.9), so that TLBI and new walk could come before it. Hence ISH.
//! * **DSB NSH behind**, ISH for a broadcast: a TLBI is complete only when a DSB is, of the CPU that executed it (D8.17.8); then no access by what was dropped is under way.
//! * **ISB last**: this CPU's own later instructions use the old translation until a context synchronisation event (D8.17.8).
//!
//! A table that becomes valid needs no TLBI, because what faults is never cached (D8.16), but [`Tlb::publish`].
//!
//! # Loading a root
//!
//! TCR_EL1.A1 is 0, so that one write of TTBR0_EL1 changes root and ASID. It takes effect any time until the ISB behind it: until then the walker may use either, each under its own ASID. So
//!
//! * **another tag is loaded**: the new tag is dropped *before* the write. Nothing is cached under it meanwhile, and after the write the walker might go through what it has cached to tables that are long
//!   freed;
//! * **the tag is loaded** (without tags, always): dropped before the write it comes back from the old root; dropped behind, the new root is used with the old root's entries until then, and two entries for one address
//!   are a TLB conflict (D8.17.1), which also a later VMALLE1 would come too late for. So a table without entries is loaded in between, under the same ASID, where nothing can come back.
//!
//! One DSB ISH, in front, is enough: it orders what this CPU has observed of the tables before all walks behind it. What separates walks of the root before from the TLBI is the ISB between write and TLBI; a DSB there
//! would add nothing (Linux's `__idmap_cpu_set_reserved_ttbr1` has none either).
//!
//! The kernel is behind TTBR1_EL1, and TTBR0_EL1 translates nothing that a load needs.
//!
//! # Tags
//!
//! ASIDs of the engine differ by CPU. So a broadcast goes by address under all ASIDs, or drops all; by ASID only where the host has given it the same meaning on all CPUs. CnP is 0 for the same reason (D8.16.3.4: CPUs
//! that share entries must have the same tables under the same ASID).
//!
//! # Break before make
//!
//! From one valid entry to another that differs in address, size, type or memory attributes: write an invalid one, flush, wait, write the new one (D8.17.1). Less only with FEAT_BBM, for sizes
//! ([`Features::break_before_make_level`](crate::Features::break_before_make_level)). The host keeps that rule; where tables are freed it also waits for the flush before it uses their memory.

mod broadcast;
mod operand;
mod ops;
mod port;
mod roots;
mod steps;

pub use broadcast::Broadcast;
pub use operand::{Asid, AsidBits, Depth, Granule, PageRange, Reach, TagEntries, Tlbi};
pub use ops::{CEILING_OPERATIONS, Tlb};
#[cfg(target_arch = "aarch64")]
pub use port::Hardware;
pub use port::{Dsb, Port};
pub use steps::Pages;
