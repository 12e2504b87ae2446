//! The address space that is loaded on this CPU.
//!
//! Each CPU holds a reference to the space it has loaded, so no space is freed while loaded. It stays loaded while
//! nothing that needs user memory runs, and its memory goes with its last thread all the same: see
//! [`SpaceUse`].

use alloc::sync::Arc;

use super::defer::catch_up;
use crate::arch::percpu;
use crate::irq;
use crate::mm::{MemorySpace, SpaceUse, Window};
use crate::platform::SHOOTDOWN;
use crate::task::Thread;
use crate::task::cpu::{self, Local};
use crate::task::current::{current, try_current, with_current_space};
use crate::task::thread::Context;

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

/// Gives the current thread another address space to use, with an open window of it or without, or none, and loads it. Must be
/// called in thread context with interrupts on: the last use of the old one gives all memory back.
pub fn change_space(wanted: Option<SpaceUse>, window: Option<Arc<Window>>) {
    let state = irq::save();
    let before = current().with_context(|context| {
        let space = core::mem::replace(&mut context.space, wanted);
        (space, core::mem::replace(&mut context.window, window))
    });
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
    let context = unsafe { &*next.context_ptr() };
    match (&context.space, &local.space) {
        (Some(wanted), Some(loaded)) if Arc::ptr_eq(wanted.space(), loaded) => {
            activate(context, wanted, Some(loaded));
            None
        }
        (Some(wanted), loaded) => {
            activate(context, wanted, loaded.as_deref());
            local.space.replace(wanted.space().clone())
        }
        (None, Some(loaded)) => {
            loaded.rest();
            None
        }
        (None, None) => None,
    }
}

/// The idle thread has been woken and rests again: under a policy that is not lazy any more, this CPU leaves the space that it has
/// kept from before. Its flushes would interrupt it for ever otherwise. Interrupts are off.
pub(super) fn rest_again() {
    if !SHOOTDOWN.policy().is_lazy() {
        cpu::this().with_local(|local| local.space.iter().for_each(|space| space.rest()));
    }
}

/// Loads the space of the thread with this context, with its window if it has one.
fn activate(context: &Context, wanted: &SpaceUse, previous: Option<&MemorySpace>) {
    match &context.window {
        Some(window) => window.activate(previous),
        None => wanted.activate(previous),
    }
}

/// Opens the window of the current thread and loads it, if this is its CPU and `may` agrees; interrupts are off when it is asked.
pub fn open_window(window: &Arc<Window>, may: impl FnOnce() -> bool) {
    let state = irq::save();
    if percpu::cpu_id() == window.cpu() && may() {
        window.open();
        current().with_context(|context| context.window = Some(window.clone()));
        enter_own_space();
    }
    irq::restore(state);
}

/// The current thread has no window any more. It is retired if this is its CPU; else that has yet to do it.
pub fn close_window() {
    let state = irq::save();
    let window = current().with_context(|context| context.window.take());
    if let Some(window) = window.filter(|window| window.cpu() == percpu::cpu_id()) {
        enter_own_space();
        window.retire();
    }
    irq::restore(state);
}

/// At a page fault of the current thread: whether the access may succeed now because this CPU had not taken the region of `addr`. Interrupts are off.
pub fn take_region(addr: usize) -> bool {
    with_current_space(|space| space.take_region(addr)) == Some(true)
}

/// At a page fault of the current thread: makes a root of this CPU's own, if its space has such roots, and loads it. Interrupts are on.
pub fn load_own_root() {
    if with_current_space(MemorySpace::make_own_root) == Some(true) {
        enter_own_space();
    }
}

/// At a page fault of the current thread: whether the access may succeed now because its window lets it see more of the
/// shared part of its space.
pub fn refresh_windows() -> bool {
    let Some(current) = try_current() else {
        return false;
    };
    current.with_context(|context| {
        context
            .window
            .as_ref()
            .is_some_and(|window| window.refresh())
    })
}
