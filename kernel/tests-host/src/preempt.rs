//! Shim of `preempt`: a count, which nobody loses a CPU by.

use crate::arch::percpu::{preempt_count, set_preempt_count};

/// Once more.
pub fn disable() {
    if preempt_count() == 0 {
        crate::witness::spins();
    }
    set_preempt_count(preempt_count() + 1);
}

/// Once less.
pub fn enable() {
    set_preempt_count(preempt_count() - 1);
}
