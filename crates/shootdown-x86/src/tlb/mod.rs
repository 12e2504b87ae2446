//! Dropping translations that this CPU has cached, and loading roots.
//!
//! Everything here but [`Broadcast`] acts on the calling CPU only. What each instruction drops is in SDM vol. 3A,
//! "Operations that Invalidate TLBs and Paging-Structure Caches", and in APM vol. 2, "TLB
//! Management". All of it is ordered after the page-table stores that precede it in program order:
//! the instructions serialise, and the wrappers are compiler barriers.
//!
//! # Tags
//!
//! With PCIDs every translation that is not global belongs to the tag that was loaded when the
//! processor cached it. A kernel that wants them asks [`PcidSupport`] whether it may, makes its [`Tlb`]
//! with [`Tlb::with_pcids`], and runs [`Tlb::start`] on each CPU. What the operations then reach:
//!
//! | | loaded tag | other tags | global |
//! |---|---|---|---|
//! | [`Tlb::flush_page`] | page, all cached tables | nothing | page |
//! | [`Tlb::flush_non_global`] | all | nothing | nothing |
//! | [`Tlb::flush_all`] | all | all | all |
//! | [`Tlb::load_tagged_root`] | by choice | nothing | nothing |
//! | [`Tlb::flush_tagged`] | as [`InvpcidKind`] says | the same | the same |
//!
//! INVPCID came later than PCIDs (Intel: Haswell and Westmere). Without it no instruction reaches a tag that is not
//! loaded except by dropping everything, so [`Tlb::flush_tagged`] does that; it is better not to
//! need it, and to load the tag with [`TagEntries::Drop`] when its turn comes.

mod broadcast;
mod invpcid;
mod ops;
mod pcid;
mod port;
mod support;

pub use broadcast::{Batch, Broadcast, BroadcastPort, Depth, InvlpgbKind, InvlpgbOperands, Stride};
pub use invpcid::InvpcidKind;
pub use ops::Tlb;
pub use pcid::{Pcid, PcidPair, TagEntries, UserSide};
pub use port::{Hardware, Port};
pub use support::{InvlpgMiss, PcidSupport};
