//! Flushes that wait until this CPU uses user memory again.
//!
//! In a system call a CPU needs no user translation until it copies something or goes back. So it tells the engine at the
//! entry, and initiators send it no interrupt for user pages; before the first copy, before another thread gets the CPU, and
//! before user mode it catches up, which drops what it has missed. After that it stays attentive until the next system
//! call. So only the running thread's own entry is ever in force, and a thread that goes on finds its CPU attentive, wherever
//! it was interrupted.
//!
//! It costs each system call a store at the entry and a full barrier on the way out, and a CPU that has missed something drops
//! everything instead of some pages: worth it where interrupts are dear and many threads are in the kernel while others
//! unmap. So it is on under policies that [defer](shootdown::Policy::defers) only.

use crate::arch::percpu;
use crate::irq;
use crate::platform::SHOOTDOWN;
use crate::task::cpu;

/// Hook of the system call entry; interrupts off.
#[inline]
pub fn defer_flushes() {
    if SHOOTDOWN.policy().defers() {
        begin();
    }
}

fn begin() {
    cpu::this().with_local(|local| {
        if let Some(space) = &local.space
            && SHOOTDOWN.user_memory().defer_flushes(space.engine())
        {
            percpu::set_deferring(true);
        }
    });
}

/// Hook of whatever is about to use user memory, or to let others do so. Any context.
#[inline]
pub fn catch_up() {
    if percpu::is_deferring() {
        end();
    }
}

/// Hook of the kernel's own accesses to user memory, where flushes are left to this CPU. Any context.
pub fn catch_up_before_access() {
    #[cfg(feature = "breaks")]
    if crate::mm::invalidate::breaks::copies_behind() {
        return;
    }
    catch_up();
}

fn end() {
    let state = irq::save();
    // The thread may have been moved since the look; whoever moved it has caught up for it.
    if percpu::is_deferring() {
        percpu::set_deferring(false);
        #[cfg(feature = "breaks")]
        if crate::mm::invalidate::breaks::stays_behind() {
            return irq::restore(state);
        }
        cpu::this().with_local(|local| {
            let space = local.space.as_ref();
            SHOOTDOWN
                .user_memory()
                .catch_up(space.expect("a space is left after catching up").engine());
        });
    }
    irq::restore(state);
}
