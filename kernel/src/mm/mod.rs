//! Memory: physical frames, the kernel heap, address spaces, and the page faults that fill them.
//!
//! From the bottom up: [`frames`] owns physical memory; `heap` is the kernel's own allocator;
//! [`page_table`] is one 4-level table; [`vma`] says which addresses a process may use, and has them in a `tree`; [`space`] ties
//! both to the shootdown engine, and `map`, `protect`, `advise`, `brk`, `remap`, `fault` and `fork` are the
//! operations on it; `cow` copies what a fork left shared, [`shared`] is what stays so; [`mod@file`] holds files, which
//! know what mappings write to them, and `msync` syncs them by address; [`nested`] shows parts of a space to virtual machines. [`invalidate`] is the only module that flushes.
//!
//! It may not know threads, processes or names of files (`task`, `fs`): it is told which space it works on.

mod access;
pub mod advise;
mod barrier;
#[cfg(target_os = "none")]
mod boot;
pub mod brk;
mod clear;
mod cow;
pub mod error;
mod fault;
pub mod file;
mod fork;
pub mod frames;
pub mod guest;
#[cfg(target_os = "none")]
pub mod heap;
pub mod invalidate;
pub mod layout;
pub mod lend;
pub mod map;
mod msync;
pub mod nested;
pub mod page_table;
pub mod place;
pub mod prot;
pub mod protect;
pub mod pte;
pub mod range;
pub mod reach;
pub mod remap;
mod resident;
pub mod shared;
pub mod space;
mod tree;
mod usage;
pub mod vma;
mod window;
mod witness;

pub use access::{FaultAccess, FaultError};
pub use advise::Advice;
pub use barrier::Barrier;
#[cfg(target_os = "none")]
pub use boot::init;
pub use error::MapError;
pub use file::{FileArea, MemoryFile};
pub use guest::GuestArea;
pub use layout::{PAGE_SIZE, USER_END};
pub use lend::Lending;
pub use map::{MapRequest, Placement, Populate};
pub use msync::SyncWhen;
pub use nested::{FirstWrites, GuestMemory};
pub use prot::Prot;
pub use range::UserRange;
pub use reach::TRACKS_SPACES;
pub use remap::Destination;
pub use shared::SharedArea;
pub use space::MemorySpace;
pub use usage::SpaceUse;
pub use vma::AreaKind;
pub use window::Window;

/// A limit in the kernel, and a small one where it is tested on the host: that is reached there.
const fn limit(in_kernel: usize, on_host: usize) -> usize {
    if cfg!(target_os = "none") {
        in_kernel
    } else {
        on_host
    }
}
