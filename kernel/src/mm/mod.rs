//! Address spaces, page tables, frames and the kernel heap.

use alloc::sync::Arc;

use crate::boot::BootInfo;

pub mod frames;
mod heap;

/// What a page fault wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAccess {
    /// A write, not a read.
    pub write: bool,
    /// An instruction fetch.
    pub exec: bool,
    /// From ring 3; else the kernel accessed user memory.
    pub user: bool,
    /// The page was present: a protection violation, or a stale translation.
    pub present: bool,
}

/// Why a page fault cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// Nothing is mapped there: SEGV_MAPERR.
    NoMapping,
    /// The mapping forbids the access: SEGV_ACCERR.
    Forbidden,
    /// No memory is left.
    OutOfMemory,
}

/// One process's memory.
#[derive(Debug)]
pub struct MemorySpace {}

/// Sets up the frame allocator and the heap. Boot CPU, before other CPUs start.
pub fn init(info: &BootInfo) {
    let _ = info;
    todo!()
}

/// Resolves a page fault of the current process, or says why not. Interrupts are on when the
/// interrupted context had them on.
pub fn handle_fault(addr: usize, access: FaultAccess) -> Result<(), FaultError> {
    let _ = (addr, access);
    todo!()
}

/// The address space of the running thread.
pub fn current() -> Option<Arc<MemorySpace>> {
    todo!()
}
