//! Switching between kernel stacks, and the first entry into ring 3.

use super::trap::TrapFrame;

/// Saves the callee-saved registers and the stack pointer in `*prev`, continues at the stack `next`.
///
/// # Safety
///
/// 1. `next` came from [`new_stack`] or from an earlier `switch`, and is used once.
/// 2. `prev` is valid for writes, also after the stacks changed.
/// 3. Interrupts are off.
pub unsafe fn switch(prev: *mut usize, next: usize) {
    let _ = (prev, next);
    todo!()
}

/// Prepares a fresh stack so that the first [`switch`] to it calls `entry(arg)` with interrupts off.
///
/// # Safety
///
/// 1. `top` is the 16-byte aligned end of memory that nothing else uses.
pub unsafe fn new_stack(top: usize, entry: extern "C" fn(usize) -> !, arg: usize) -> usize {
    let _ = (top, entry, arg);
    todo!()
}

/// Goes to ring 3 with all registers from `frame`. Calls `task::before_user_return` first? No: the
/// caller has done so. Interrupts are off; the current stack is abandoned.
pub fn enter_user(frame: &TrapFrame) -> ! {
    let _ = frame;
    todo!()
}
