//! The Linux x86-64 system call surface.

use crate::arch::trap::TrapFrame;

/// Runs one system call; the result is in `frame.rax` afterwards. Interrupts are on.
pub fn dispatch(frame: &mut TrapFrame) {
    let _ = frame;
    todo!()
}
