//! The frame that a handler finds on its stack: Linux's x86-64 `rt_sigframe`.
//!
//! From the stack pointer of the handler upwards: return address, `ucontext_t`, `siginfo_t`, and
//! higher up the FPU registers as FXSAVE stores them, which the context points to.

use super::{AltStack, SigInfo, Signal, SignalSet};
use crate::addr;
use crate::arch::fpu::{self, FpuState};
use crate::arch::trap::TrapFrame;
use crate::arch::uaccess::{self, Pod};

/// Bytes below the stack pointer that leaf functions use without moving it (System V ABI).
const RED_ZONE_BYTES: usize = 128;

/// Bytes of a `siginfo_t`.
const SIGINFO_BYTES: usize = 128;

/// `UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`: the context holds a valid stack segment.
const CONTEXT_FLAGS: u64 = 0x2 | 0x4;

/// Flags that a handler may change for the interrupted program: CF PF AF ZF SF TF DF OF RF AC.
const USER_FLAGS: u64 =
    1 << 0 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11 | 1 << 16 | 1 << 18;

/// Flags cleared as a handler starts: TF, DF, RF.
const CLEARED_FLAGS: u64 = 1 << 8 | 1 << 10 | 1 << 16;

/// `struct sigcontext` of x86-64.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
struct SigContext {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    rflags: u64,
    cs: u16,
    gs: u16,
    fs: u16,
    ss: u16,
    error: u64,
    trap: u64,
    old_mask: u64,
    cr2: u64,
    fpu: u64,
    reserved: [u64; 8],
}

/// `struct ucontext` of x86-64.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct UContext {
    flags: u64,
    link: u64,
    stack: AltStack,
    registers: SigContext,
    mask: u64,
}

/// The frame up to the FPU registers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RtSigFrame {
    return_address: u64,
    context: UContext,
    info: [u8; SIGINFO_BYTES],
}

// SAFETY: `repr(C)`, integers only, and their sizes (asserted below) leave no padding.
unsafe impl Pod for UContext {}
// SAFETY: as above.
unsafe impl Pod for RtSigFrame {}

const _: () = assert!(size_of::<SigContext>() == 256);
const _: () = assert!(size_of::<UContext>() == 304);
const _: () = assert!(size_of::<RtSigFrame>() == 8 + 304 + 128);

/// User memory did not take or give the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadFrame;

impl From<uaccess::Fault> for BadFrame {
    fn from(_: uaccess::Fault) -> Self {
        Self
    }
}

/// Where a handler runs, and what it must leave as it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub handler: usize,
    pub restorer: usize,
    pub info: SigInfo,
    /// Blocked set to come back to.
    pub blocked: SignalSet,
    pub alt_stack: AltStack,
    /// Switch to the alternate stack unless on it already.
    pub use_alt_stack: bool,
}

/// What [`pop`] brings back besides the registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resumed {
    pub blocked: SignalSet,
    pub alt_stack: AltStack,
}

/// Writes the frame to the user stack and makes `frame` enter the handler. `frame` stays as it is when that fails.
pub(super) fn push(frame: &mut TrapFrame, call: &Call) -> Result<(), BadFrame> {
    let rsp = frame.rsp as usize;
    let rip = user_address(call.handler as u64)?;
    let start = if call.use_alt_stack && call.alt_stack.is_enabled() && !call.alt_stack.holds(rsp) {
        call.alt_stack.top()
    } else {
        rsp.wrapping_sub(RED_ZONE_BYTES)
    };
    let mut registers = FpuState::initial();
    fpu::save(&mut registers);
    let fpu_at = start.wrapping_sub(size_of::<FpuState>()) & !63;
    // The handler starts as if called: its stack pointer is 8 below a multiple of 16.
    let frame_at = (fpu_at.wrapping_sub(size_of::<RtSigFrame>()) & !15).wrapping_sub(8);
    if call.alt_stack.holds(rsp) && !call.alt_stack.holds(frame_at) {
        return Err(BadFrame);
    }
    let on_stack = RtSigFrame {
        return_address: call.restorer as u64,
        context: UContext {
            flags: CONTEXT_FLAGS,
            link: 0,
            stack: call.alt_stack.seen_from(rsp),
            registers: save_registers(frame, call, fpu_at),
            mask: call.blocked.bits(),
        },
        info: call.info.to_bytes(),
    };
    uaccess::copy_to_user(fpu_at, registers.bytes())?;
    uaccess::write_user(frame_at, on_stack)?;
    frame.rdi = u64::from(call.info.signal().number());
    frame.rsi = (frame_at + core::mem::offset_of!(RtSigFrame, info)) as u64;
    frame.rdx = (frame_at + core::mem::offset_of!(RtSigFrame, context)) as u64;
    frame.rax = 0;
    frame.rip = rip;
    frame.rsp = frame_at as u64;
    frame.rflags &= !CLEARED_FLAGS;
    Ok(())
}

fn save_registers(frame: &TrapFrame, call: &Call, fpu_at: usize) -> SigContext {
    SigContext {
        r8: frame.r8,
        r9: frame.r9,
        r10: frame.r10,
        r11: frame.r11,
        r12: frame.r12,
        r13: frame.r13,
        r14: frame.r14,
        r15: frame.r15,
        rdi: frame.rdi,
        rsi: frame.rsi,
        rbp: frame.rbp,
        rbx: frame.rbx,
        rdx: frame.rdx,
        rax: frame.rax,
        rcx: frame.rcx,
        rsp: frame.rsp,
        rip: frame.rip,
        rflags: frame.rflags,
        cs: frame.cs as u16,
        ss: frame.ss as u16,
        error: if frame.vector == TrapFrame::SYSCALL {
            0
        } else {
            frame.error_code
        },
        trap: if frame.vector == TrapFrame::SYSCALL {
            0
        } else {
            frame.vector
        },
        old_mask: call.blocked.bits(),
        cr2: if call.info.signal() == Signal::SEGV {
            call.info.address() as u64
        } else {
            0
        },
        fpu: fpu_at as u64,
        ..SigContext::default()
    }
}

/// Takes back the frame that the handler's return left at the stack pointer: registers into
/// `frame`, the rest into the result. Whatever user mode wrote there, the registers stay ones
/// that user mode may have.
pub(super) fn pop(frame: &mut TrapFrame) -> Result<Resumed, BadFrame> {
    // The return instruction of the handler took the return address off.
    let context_at = frame.rsp as usize;
    let context: UContext = uaccess::read_user(context_at)?;
    let registers = &context.registers;
    let rip = user_address(registers.rip)?;
    let fpu = match registers.fpu {
        0 => FpuState::initial(),
        at => {
            let mut image = [0; size_of::<FpuState>()];
            uaccess::copy_from_user(&mut image, at as usize)?;
            FpuState::from_bytes(&image)
        }
    };
    fpu::restore(&fpu);
    frame.r8 = registers.r8;
    frame.r9 = registers.r9;
    frame.r10 = registers.r10;
    frame.r11 = registers.r11;
    frame.r12 = registers.r12;
    frame.r13 = registers.r13;
    frame.r14 = registers.r14;
    frame.r15 = registers.r15;
    frame.rdi = registers.rdi;
    frame.rsi = registers.rsi;
    frame.rbp = registers.rbp;
    frame.rbx = registers.rbx;
    frame.rdx = registers.rdx;
    frame.rax = registers.rax;
    frame.rcx = registers.rcx;
    frame.rsp = registers.rsp;
    frame.rip = rip;
    // Segments stay those of the kernel's choice.
    frame.rflags = (frame.rflags & !USER_FLAGS) | (registers.rflags & USER_FLAGS);
    let blocked = SignalSet::from_bits(context.mask).blockable();
    Ok(Resumed {
        blocked,
        alt_stack: context.stack,
    })
}

/// Returning to an address outside the user half faults in ring 0, so it is refused here.
fn user_address(rip: u64) -> Result<u64, BadFrame> {
    if (rip as usize) < addr::USER_END {
        Ok(rip)
    } else {
        Err(BadFrame)
    }
}
