//! The address space that is loaded on this CPU.
//!
//! Each CPU holds a reference to the space it has loaded, so no space is freed while loaded.

use alloc::sync::Arc;

use crate::arch::irq;
use crate::mm::MemorySpace;
use crate::task::Thread;
use crate::task::cpu::{self, Local};
use crate::task::current::current;

/// Unloads the user half of the current thread's address space on this CPU and gives up the
/// thread's reference to it. Must be called in thread context with interrupts on: the last
/// reference frees the whole space.
pub(in crate::task) fn leave_space() {
    let state = irq::save();
    let loaded =
        cpu::this().with_local(|local| local.space.take().inspect(|space| space.deactivate()));
    let own = current().with_context(|context| context.space.take());
    irq::restore(state);
    drop(loaded);
    drop(own);
}

/// Loads the space that the current thread has in its context now (after `execve`).
pub(in crate::task) fn enter_own_space() {
    let state = irq::save();
    let old = cpu::this().with_local(|local| {
        let current = local.current.clone();
        load_space_of(local, &current)
    });
    irq::restore(state);
    drop(old);
}

/// Loads the address space that `next` needs and returns the reference to the one before.
pub(super) fn load_space_of(local: &mut Local, next: &Thread) -> Option<Arc<MemorySpace>> {
    // SAFETY: duty (2) of `context_ptr`: this CPU switches to `next`, which runs nowhere.
    let wanted = unsafe { &(*next.context_ptr()).space };
    match (wanted, &local.space) {
        (Some(wanted), Some(loaded)) if Arc::ptr_eq(wanted, loaded) => None,
        (None, None) => None,
        (Some(wanted), loaded) => {
            wanted.activate(loaded.as_deref());
            local.space.replace(wanted.clone())
        }
        (None, Some(loaded)) => {
            loaded.deactivate();
            local.space.take()
        }
    }
}
