//! Signal handlers, and stacks for them.

use std::io;
use std::ptr;

use crate::machine;

/// Bytes of a stack for handlers.
const STACK_BYTES: usize = 64 << 10;

/// Has `signal` handled from now on; how it was handled before.
///
/// # Safety
/// 1. `handler` is none (`SIG_DFL`, `SIG_IGN`), or a function of the kind that `flags` say, which may run at any instruction.
pub unsafe fn handle(
    signal: i32,
    handler: libc::sighandler_t,
    flags: i32,
) -> io::Result<libc::sigaction> {
    // SAFETY: `sigaction` is made of integers and a set of bits, for which zero is a valid value.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: both actions are valid; 1. is the caller's.
    machine::done(unsafe { libc::sigaction(signal, &new, &mut old) })?;
    Ok(old)
}

/// Gives the calling thread a stack for handlers, for the rest of the process's life.
pub fn use_signal_stack() -> io::Result<()> {
    let stack: &'static mut [u8] = Vec::leak(vec![0; STACK_BYTES]);
    let stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: STACK_BYTES,
    };
    // SAFETY: the memory was just leaked: it is this thread's alone and is never freed.
    machine::done(unsafe { libc::sigaltstack(&stack, ptr::null_mut()) })
}

/// Sends this process a signal.
pub fn send_self(signal: i32) -> io::Result<()> {
    let own = std::process::id() as libc::pid_t;
    // SAFETY: its handler, if there is one, is of those that `handle` was promised.
    machine::done(unsafe { libc::kill(own, signal) })
}
