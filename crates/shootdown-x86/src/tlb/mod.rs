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
//! | [`Tlb::flush_page`] | page, cached tables that lead to it | nothing | page |
//! | [`Tlb::flush_pages`] of tables that were freed | pages, all cached tables | nothing | pages |
//! | [`Tlb::flush_non_global`] | all | nothing | nothing |
//! | [`Tlb::flush_all`] | all | all | all |
//! | [`Tlb::load_tagged_root`] | by choice | nothing | nothing |
//! | [`Tlb::flush_tagged`] | as [`InvpcidKind`] says | the same | the same |
//! | [`Tlb::flush_user_side`] | nothing | pages, or all, of the user side | nothing |
//!
//! # Freed tables
//!
//! A processor caches entries of page tables, too, and walks through them to a table that was freed. INVLPG drops all of
//! the loaded tag's; on AMD's processors with the *translation cache extension*, while EFER.TCE is set, it drops those that
//! lead to its address only, and so does INVLPGB by the EFER.TCE of the CPU that executes it (APM vol. 2, "Extended Feature
//! Enable Register (EFER)"). INVPCID of an address never promised more (SDM vol. 2A, "INVPCID"). So whoever frees tables says
//! [`Depth::Tables`]; what has the pages' addresses only, as [`Tlb::flush_page`], is for leaf entries.
//!
//! INVPCID came later than PCIDs (Intel: Haswell and Westmere). Without it no instruction reaches a tag that is not
//! loaded except by dropping everything, so [`Tlb::flush_tagged`] does that; it is better not to
//! need it, and to load the tag with [`TagEntries::Drop`] when its turn comes.

mod broadcast;
mod invlpgb;
mod invpcid;
mod ops;
mod pcid;
mod port;
mod support;
mod tagged;

pub use broadcast::{Batch, Broadcast, BroadcastPort};
pub use invlpgb::{Depth, InvlpgbKind, InvlpgbOperands, Stride};
pub use invpcid::InvpcidKind;
pub use ops::Tlb;
pub use pcid::{Pcid, PcidPair, TagEntries, UserSide};
pub use port::{Hardware, Port};
pub use support::{InvlpgMiss, PcidSupport};
