//! Preemption: the one place where it goes off and on, which tells the latency tracer.

use spin::Once;

use crate::arch::percpu;
use crate::latency;

/// How a CPU gives way to another thread: the scheduler's. May be called in any context.
pub static GIVE_WAY: Once<fn()> = Once::new();

/// Keeps the running thread on this CPU, and others off it, until [`enable`]. Nests.
#[inline]
#[track_caller]
pub fn disable() {
    percpu::raise_preempt_count();
    latency::preempt_off();
}

/// Undoes one [`disable`]. The last one gives way to another thread when that is due and interrupts
/// are on; it returns when this thread runs again, perhaps elsewhere.
#[inline]
pub fn enable() {
    debug_assert!(percpu::preempt_count() > 0);
    latency::preempt_on();
    let is_last = percpu::lower_preempt_count();
    // Moved to another CPU in between, the thread has given way already.
    if is_last
        && percpu::need_resched()
        && let Some(give_way) = GIVE_WAY.get()
    {
        give_way();
    }
}
