//! CPUs in user mode and in guests are quiet: flushes of the kernel's part, and changes of its text, wait until they come back.
//!
//! Every way into the kernel calls [`leave`] first, every way to user mode or into a guest [`enter`] last. Only self-tests turn it on: elsewhere this kernel's own mappings never change
//! (see [`platform`](crate::platform)), so nothing would be spared.

#[cfg(feature = "selftest")]
pub use in_selftests::{CHECK, enter, leave, turn_on};

#[cfg(feature = "selftest")]
mod in_selftests {
    use core::sync::atomic::{AtomicBool, Ordering};

    use spin::Once;

    use crate::platform::SHOOTDOWN;

    static IS_ON: AtomicBool = AtomicBool::new(false);

    /// What is called when a CPU is in the kernel again, and behind that what makes good; with `false` before it.
    pub static CHECK: Once<fn(bool)> = Once::new();

    /// From here on CPUs outside the kernel are left alone.
    pub fn turn_on() {
        IS_ON.store(true, Ordering::Relaxed);
    }

    /// This CPU goes to user mode or into a guest. Interrupts are off.
    #[inline]
    pub fn enter() {
        if IS_ON.load(Ordering::Relaxed) {
            // SAFETY: 1. what follows are the last instructions of a way out, and what comes before `leave` the first of a way in: text, stacks, descriptor tables and `PerCpu`
            // stay as boot made them. 2. SMAP's sites are patched before other CPUs start.
            unsafe { SHOOTDOWN.control().enter_quiet() };
        }
    }

    /// This CPU is in the kernel. True if it was quiet: whoever returns to where it was calls [`enter`] again. Interrupts are off; NMI handlers call it, too.
    #[inline]
    pub fn leave() -> bool {
        let check = |is_good| {
            if let Some(check) = CHECK.get() {
                check(is_good);
            }
        };
        check(false);
        let was_quiet = SHOOTDOWN.control().leave_quiet();
        if was_quiet {
            check(true);
        }
        was_quiet
    }
}

/// Nobody is ever quiet.
#[cfg(not(feature = "selftest"))]
#[inline]
pub fn enter() {}

/// Nobody was.
#[cfg(not(feature = "selftest"))]
#[inline]
pub fn leave() -> bool {
    false
}
