//! Dropping translations that this CPU has cached.
//!
//! Everything here acts on the calling CPU only. What each instruction drops is in SDM vol. 3A,
//! "Operations that Invalidate TLBs and Paging-Structure Caches", and in APM vol. 2, "TLB
//! Management". All of it is ordered after the page-table stores that precede it in program order:
//! the instructions serialise, and the wrappers are compiler barriers.

mod invpcid;
mod ops;
mod port;

pub use invpcid::{InvpcidKind, Pcid};
pub use ops::Tlb;
pub use port::{Hardware, Port};
