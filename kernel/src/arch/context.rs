//! Switching between kernel stacks, and the first entry into ring 3.

use core::arch::naked_asm;

use super::trap::TrapFrame;

/// Saves the callee-saved registers and the stack pointer in `*prev`, continues at the stack `next`.
///
/// # Safety
///
/// 1. `next` came from [`new_stack`] or from an earlier `switch`, and is used once.
/// 2. `prev` is valid for writes, also after the stacks changed.
/// 3. Interrupts are off.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(prev: *mut usize, next: usize) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// What `switch` pops, from the lowest address up, and what `first_run` expects.
#[repr(C)]
struct FirstFrame {
    r15: usize,
    r14: usize,
    arg: usize,
    entry: extern "C" fn(usize) -> !,
    rbx: usize,
    /// 0 ends backtraces.
    rbp: usize,
    return_to: unsafe extern "C" fn(),
    /// So that `first_run` starts with an aligned stack.
    padding: usize,
}

/// Where the first `switch` to a new stack returns to: R12 = entry, R13 = argument.
#[unsafe(naked)]
unsafe extern "C" fn first_run() {
    naked_asm!("mov rdi, r13", "call r12", "ud2")
}

/// Prepares a fresh stack so that the first [`switch`] to it calls `entry(arg)` with interrupts off.
///
/// # Safety
///
/// 1. `top` is the 16-byte aligned end of memory that nothing else uses, of 64 bytes at least.
pub unsafe fn new_stack(top: usize, entry: extern "C" fn(usize) -> !, arg: usize) -> usize {
    assert!(top.is_multiple_of(16), "stack top {top:#x} is not aligned");
    // After `switch` popped seven words the stack pointer is `top - 16`: aligned before the CALL in
    // `first_run`, as the ABI wants.
    let frame = (top - 8 - size_of::<FirstFrame>()) as *mut FirstFrame;
    let first = FirstFrame {
        r15: 0,
        r14: 0,
        arg,
        entry,
        rbx: 0,
        rbp: 0,
        return_to: first_run,
        padding: 0,
    };
    // SAFETY: 1. the caller's; aligned to 8 as `top` is to 16.
    unsafe { frame.write(first) };
    frame.addr()
}

unsafe extern "C" {
    /// In `traps/entry.s`.
    fn enter_user_frame(frame: *const TrapFrame) -> !;
}

/// Goes to ring 3 with all registers from `frame`; the current stack is abandoned.
///
/// Interrupts are off, and told to go on; what is due before user mode has been done. Leaves with interrupts enabled.
///
/// # Panics
///
/// When `frame.rip` is not a user address.
pub fn enter_user(frame: &TrapFrame) -> ! {
    let mut frame = *frame;
    assert!(
        frame.rip < crate::addr::USER_END as u64,
        "ring 3 cannot start at {:#x}",
        frame.rip
    );
    frame.sanitize();
    debug_assert!(!shootdown_x86::irq::state().is_enabled());
    // SAFETY: a sanitized frame with a canonical RIP, interrupts off, GS is the kernel's.
    unsafe { enter_user_frame(&frame) }
}
