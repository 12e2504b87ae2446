//! Physical page frames: who owns which, and getting one quickly.
//!
//! A [`Frame`] is the proof of ownership of one 4 KiB frame; a [`FrameChain`] owns many and needs no
//! memory of its own; a [`Share`] is one of several ownerships, as fork makes them. Allocation takes from a per-CPU cache, which refills from one global pool.
//! Frames are not zeroed when freed nor kept zeroed in advance: [`alloc_zeroed`] pays for it.
//!
//! It may not know page tables or address spaces.

mod cache;
mod chain;
mod frame;
mod list;
mod pool;
mod share;

#[cfg(feature = "breaks")]
pub use cache::donate;
pub use cache::{alloc, alloc_zeroed, drain, free, free_chain, free_count};
pub use chain::FrameChain;
pub use frame::Frame;
pub use list::ShareList;
pub use pool::{capacity, init};
#[cfg(feature = "breaks")]
pub use share::is_free;
pub use share::{Share, is_shared};
