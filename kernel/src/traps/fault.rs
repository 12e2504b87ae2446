//! Exceptions: page faults go to the address space, other faults of ring 3 to the task, and what
//! the kernel itself did wrong ends it. What only an old translation refused it is tried again.

use crate::addr::USER_END;
use crate::arch::spurious::Fault;
use crate::arch::trap::{TrapFrame, vectors};
use crate::arch::{cpu, extable, paging, percpu, tlb};
use crate::irq::{self, IrqState};
use crate::mm::{FaultAccess, FaultError, MemorySpace};
use crate::panic;
use crate::task::{self, UserException};

/// Error code of #PF (SDM vol. 3A, "Interrupt 14: Page-Fault Exception").
const CODE_PRESENT: u64 = 1 << 0;
const CODE_WRITE: u64 = 1 << 1;
const CODE_USER: u64 = 1 << 2;
const CODE_RESERVED: u64 = 1 << 3;
const CODE_FETCH: u64 = 1 << 4;

/// Handles one exception. Interrupts are off on entry, and on while others are asked.
pub(super) fn exception(frame: &mut TrapFrame) {
    if frame.vector == vectors::PAGE_FAULT as u64 {
        // Before interrupts can come and fault themselves.
        let address = cpu::fault_address();
        page_fault(frame, address);
    } else if frame.is_from_user() {
        irq::enable();
        task::user_exception(frame, classify(frame));
        irq::disable();
    } else if let Some(fixup) = extable::fixup(frame.rip as usize) {
        frame.rip = fixup as u64;
    } else {
        panic::exception(frame);
    }
}

fn page_fault(frame: &mut TrapFrame, address: usize) {
    let code = frame.error_code;
    if code & CODE_RESERVED != 0 {
        // A page-table entry with a reserved bit: the tables are corrupt, whoever stepped on it.
        panic::exception(frame);
    }
    #[cfg(feature = "selftest")]
    crate::selftest::before_spurious(address);
    // Also where an instruction of user mode made the processor look into a table of the kernel's.
    if paging::permits_now(Fault { address, code }) && tlb::retry(address) {
        return;
    }
    // Where the kernel must not sleep, too.
    if address < USER_END && code & CODE_PRESENT == 0 && task::take_region(address) {
        return;
    }
    let access = FaultAccess {
        write: code & CODE_WRITE != 0,
        exec: code & CODE_FETCH != 0,
        user: code & CODE_USER != 0,
        present: code & CODE_PRESENT != 0,
    };
    if frame.is_from_user() {
        irq::enable();
        if !access.user {
            // The instruction made the processor look into a system table, or QEMU 7 read an IRET's
            // stack as the kernel, which SMAP forbids however often it is tried.
            let code = frame.error_code;
            task::user_exception(frame, UserException::Protection { code });
        } else if let Err(error) = resolve(address, access) {
            let fault = UserException::PageFault {
                address,
                access,
                error,
            };
            task::user_exception(frame, fault);
        }
        irq::disable();
        return;
    }
    // The kernel may fault on user memory, and only in instructions that have a fixup.
    let Some(fixup) = extable::fixup(frame.rip as usize) else {
        panic::exception(frame);
    };
    // Resolving it may sleep: not with a spin lock held, nor with interrupts off.
    let may_sleep =
        percpu::preempt_count() == 0 && IrqState::from_rflags(frame.rflags).is_enabled();
    let resolved = address < USER_END && may_sleep && {
        irq::enable();
        let resolved = resolve(address, access).is_ok();
        irq::disable();
        resolved
    };
    if !resolved {
        frame.rip = fixup as u64;
    }
}

/// Resolves a page fault of the running thread, from ring 3 and from the copy routines of the kernel. Interrupts and
/// preemption are on; may sleep for the lock of the address space.
///
/// # Errors
/// Says why the access is not allowed or cannot be served.
fn resolve(address: usize, access: FaultAccess) -> Result<(), FaultError> {
    if task::refresh_windows() {
        return Ok(());
    }
    task::load_own_root();
    let resolve = |space: &MemorySpace| {
        if space.is_granted(address, access) {
            return Ok(());
        }
        space.fault(address, access)?;
        task::current().count_fault();
        Ok(())
    };
    task::with_current_space(resolve).unwrap_or(Err(FaultError::NoProcess))
}

/// The exception's name for the task layer. Only for frames from ring 3, not for #PF.
fn classify(frame: &TrapFrame) -> UserException {
    match frame.vector as usize {
        vectors::DIVIDE_ERROR => UserException::DivideError,
        vectors::DEBUG => UserException::Debug,
        vectors::BREAKPOINT => UserException::Breakpoint,
        vectors::OVERFLOW => UserException::Overflow,
        vectors::BOUND_RANGE => UserException::BoundRange,
        vectors::INVALID_OPCODE => UserException::InvalidOpcode,
        vectors::DEVICE_NOT_AVAILABLE => UserException::DeviceNotAvailable,
        vectors::SEGMENT_NOT_PRESENT | vectors::STACK_SEGMENT | vectors::GENERAL_PROTECTION => {
            UserException::Protection {
                code: frame.error_code,
            }
        }
        vectors::X87 | vectors::SIMD => UserException::FloatingPoint,
        vectors::ALIGNMENT_CHECK => UserException::AlignmentCheck,
        _ => UserException::Other {
            vector: frame.vector,
        },
    }
}
