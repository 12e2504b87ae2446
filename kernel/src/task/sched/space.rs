//! The address space that is loaded on this CPU.
//!
//! Each CPU holds a reference to the space it has loaded, so no space is freed while loaded. It stays loaded while
//! nothing that needs user memory runs, and its memory goes with its last thread all the same: see
//! [`SpaceUse`].

use alloc::sync::Arc;

use super::defer::catch_up;
use crate::arch::irq;
use crate::mm::{MemorySpace, SpaceUse};
use crate::task::Thread;
use crate::task::cpu::{self, Local};
use crate::task::current::current;

/// Unloads the user half of the current thread's address space on this CPU and gives up the
/// thread's use of it. Must be called in thread context with interrupts on: the last use gives all
/// memory back.
pub(in crate::task) fn leave_space() {
    let state = irq::save();
    catch_up();
    let loaded =
        cpu::this().with_local(|local| local.space.take().inspect(|space| space.deactivate()));
    let own = current().with_context(|context| context.space.take());
    irq::restore(state);
    drop(loaded);
    drop(own);
}

/// Gives the current thread another address space to use, or none, and loads it. Must be called in thread context with
/// interrupts on: the last use of the old one gives all memory back.
pub fn change_space(wanted: Option<SpaceUse>) {
    let state = irq::save();
    let before = current().with_context(|context| core::mem::replace(&mut context.space, wanted));
    irq::restore(state);
    enter_own_space();
    drop(before);
}

/// Loads the space that the current thread has in its context now (after `execve`).
pub(in crate::task) fn enter_own_space() {
    let state = irq::save();
    catch_up();
    let old = cpu::this().with_local(|local| {
        let current = local.current.clone();
        load_space_of(local, &current)
    });
    irq::restore(state);
    drop(old);
}

/// Loads the address space that `next` needs and returns the reference to the one before. A thread that needs none
/// leaves the loaded one where it is.
///
/// Dropping what it returns frees no more than the rest of a dead space, so it may happen with interrupts off.
pub(super) fn load_space_of(local: &mut Local, next: &Thread) -> Option<Arc<MemorySpace>> {
    // SAFETY: duty (2) of `context_ptr`: this CPU switches to `next`, which runs nowhere.
    let wanted = unsafe { &(*next.context_ptr()).space };
    match (wanted, &local.space) {
        (Some(wanted), Some(loaded)) if Arc::ptr_eq(wanted.space(), loaded) => {
            wanted.activate(Some(loaded));
            None
        }
        (Some(wanted), loaded) => {
            wanted.activate(loaded.as_deref());
            local.space.replace(wanted.space().clone())
        }
        (None, Some(loaded)) => {
            loaded.rest();
            None
        }
        (None, None) => None,
    }
}
