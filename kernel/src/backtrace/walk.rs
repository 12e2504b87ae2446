//! Following frame pointers (System V ABI for AMD64, "The Stack Frame") without ever faulting: only on the stack that was
//! interrupted, which is mapped because the processor was using it.

use core::ops::Range;

use arrayvec::ArrayVec;

use crate::arch::stacks::{KERNEL_STACK_BYTES, Stacks};
use crate::arch::trap::TrapFrame;
use crate::arch::{paging, percpu};

/// Return addresses kept at most.
pub(super) const FRAMES: usize = 24;

/// The return addresses above an interrupted place in the kernel, the nearest first. Empty when that was user mode, or in the
/// few instructions between one stack and another.
pub(super) fn return_addresses(frame: &TrapFrame) -> ArrayVec<usize, FRAMES> {
    let mut found = ArrayVec::new();
    let rsp = frame.rsp as usize;
    let Some(stack) = stack_around(rsp).filter(|_| !frame.is_from_user()) else {
        return found;
    };
    // What lies below the stack pointer is not in use.
    let mut lowest = rsp;
    let mut at = frame.rbp as usize;
    while at >= lowest && at.is_multiple_of(size_of::<usize>()) && at + 16 <= stack.end {
        let (next, address) = (word(at), word(at + 8));
        if !paging::is_kernel_code(address) || found.try_push(address).is_err() {
            break;
        }
        lowest = at + 16;
        at = next;
    }
    found
}

/// The kernel stack of this CPU or of its thread that this address is on.
fn stack_around(rsp: usize) -> Option<Range<usize>> {
    let main = Stacks::of(percpu::cpu_id().index()).main();
    let top = percpu::kernel_stack();
    let thread = top.saturating_sub(KERNEL_STACK_BYTES)..top;
    [main, thread]
        .into_iter()
        .find(|stack| stack.contains(&rsp))
}

/// A word of the stack, at an aligned address inside it.
fn word(at: usize) -> usize {
    let at = at as *const usize;
    // SAFETY: the caller has checked that it lies in a stack that is in use; its owner is interrupted.
    unsafe { at.read_volatile() }
}
