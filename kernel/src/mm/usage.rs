//! [`SpaceUse`]: a thread's hold on its address space.
//!
//! An idle CPU keeps the space that it ran last, which is cheap and spares a flush, but must not keep a dead process's
//! memory. So what counts is who uses a space: when the last thread lets go, everything is unmapped at once. That
//! frees tables, which makes every CPU that is lazy in the space load the kernel's root. What is left for the last
//! such CPU to free, when it switches next, is one frame and a piece of kernel heap.

use super::layout::USER_END;
use super::space::MemorySpace;
use alloc::sync::Arc;
use core::ops::Deref;
use core::sync::atomic::Ordering;

/// Use of an address space by one thread. Dropping the last one gives the memory back and waits for other CPUs: call it
/// with interrupts on and without locks.
#[derive(Debug)]
pub struct SpaceUse(Arc<MemorySpace>);

impl SpaceUse {
    /// One more user.
    pub fn new(space: Arc<MemorySpace>) -> Self {
        space.users.fetch_add(1, Ordering::Relaxed);
        Self(space)
    }

    /// The space itself, to be kept without using it.
    pub fn space(&self) -> &Arc<MemorySpace> {
        &self.0
    }
}

impl Deref for SpaceUse {
    type Target = MemorySpace;

    fn deref(&self) -> &MemorySpace {
        &self.0
    }
}

impl Drop for SpaceUse {
    fn drop(&mut self) {
        // ORDERING: the last user sees what the others have done to the space.
        let was_last = self.0.users.fetch_sub(1, Ordering::AcqRel) == 1;
        // Nobody else has it: it goes as a whole, without a flush. If somebody has, it is an idle CPU.
        if was_last && Arc::strong_count(&self.0) > 1 {
            let emptied = self.0.unmap(0, USER_END);
            debug_assert!(emptied.is_ok(), "nothing is split: {emptied:?}");
        }
    }
}
