//! Threads, processes and scheduling.

use crate::arch::trap::{TrapFrame, UserException};

/// The timer ticked on this CPU. Interrupts are off.
pub fn timer_tick() {
    todo!()
}

/// Last stop before every return to ring 3, interrupts off: reschedule, end, deliver signals.
pub fn before_user_return(frame: &mut TrapFrame) {
    let _ = frame;
    todo!()
}

/// An exception in ring 3 that nobody resolved. Interrupts are on.
pub fn user_exception(frame: &mut TrapFrame, exception: UserException) {
    let _ = (frame, exception);
    todo!()
}

/// Starts the first program. Boot CPU, when everything is up; interrupts are off.
pub fn start_init() -> ! {
    todo!()
}

/// Starts scheduling on any other CPU; interrupts are off.
pub fn start_secondary() -> ! {
    todo!()
}

/// The address space of the running thread; `None` on idle threads.
pub fn current_space() -> Option<alloc::sync::Arc<crate::mm::MemorySpace>> {
    todo!()
}
