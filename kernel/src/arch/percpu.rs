//! Per-CPU data, found through GS.

use shootdown::CpuId;

/// The running CPU. Stale at once when the caller can be moved.
pub fn cpu_id() -> CpuId {
    todo!()
}

/// What [`set_current_thread`] stored on this CPU; null before.
pub fn current_thread() -> *mut () {
    todo!()
}

/// Remembers the running thread of this CPU. Opaque here.
pub fn set_current_thread(thread: *mut ()) {
    let _ = thread;
    todo!()
}

/// Where this CPU's stack pointer starts on entry from ring 3 (interrupts, exceptions, SYSCALL).
/// 16-byte aligned.
pub fn set_kernel_stack(top: usize) {
    let _ = top;
    todo!()
}

/// Forbids `schedule` on this CPU. Nests.
pub fn preempt_disable() {
    todo!()
}

/// Undoes one [`preempt_disable`].
pub fn preempt_enable() {
    todo!()
}

/// How many [`preempt_disable`] are open on this CPU.
pub fn preempt_count() -> u32 {
    todo!()
}
