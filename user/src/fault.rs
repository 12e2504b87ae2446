//! Accesses that may fault, for programs that look at what they are refused: the fault is told instead of ending the program.
//!
//! Any thread may make them at any time. `torture` has accesses of its own, with a look at what was promised before and after.

use std::arch::asm;
use std::io;

use crate::signals;

/// Why an access was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// SIGSEGV or SIGBUS.
    pub signal: i32,
    /// Its `si_code`.
    pub code: i32,
    /// Its `si_addr`.
    pub address: usize,
}

/// In R12 while an access is under way, and at no other time.
const MARK: u64 = 0x5ca1_ab1e_fa17_ed00;

/// Has faults of the accesses below handled from now on. Any other fault ends the program.
pub fn handle() -> io::Result<()> {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the handler is of the kind that SA_SIGINFO says, and touches its own frame only.
        unsafe { signals::handle(signal, handler as libc::sighandler_t, libc::SA_SIGINFO) }?;
    }
    Ok(())
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid context, the handler's to change.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    if registers[libc::REG_R12 as usize] as u64 != MARK {
        // The access is made again, and ends the program.
        // SAFETY: sets the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    // SAFETY: the kernel passes a valid siginfo_t.
    let info = unsafe { &*info };
    // SAFETY: it is a fault's.
    let address = unsafe { info.si_addr() };
    registers[libc::REG_R8 as usize] = i64::from(signal);
    registers[libc::REG_R9 as usize] = i64::from(info.si_code);
    registers[libc::REG_R10 as usize] = address.addr() as i64;
    registers[libc::REG_RIP as usize] = registers[libc::REG_R13 as usize];
}

/// Executes an instruction that may fault, with these operands; whether it did.
macro_rules! attempt {
    ($instruction:literal, $($operand:tt)*) => {{
        let (signal, code, address): (u64, u64, u64);
        // SAFETY: goes on behind the instruction, by itself or by `on_fault`, which changes no register but those named here. No
        // reference leads to what the instruction accesses; what it calls is a `ret`, and the stack pointer is the same again.
        unsafe {
            asm!(
                "xor r8d, r8d",
                "lea r13, [rip + 2f]",
                "mov r14, rsp",
                "mov r12, {mark}",
                $instruction,
                "2:",
                "xor r12d, r12d",
                "mov rsp, r14",
                mark = const MARK,
                $($operand)*,
                out("r8") signal, out("r9") code, out("r10") address,
                out("r12") _, out("r13") _, out("r14") _,
            );
        }
        match signal {
            0 => Ok(()),
            _ => Err(Fault { signal: signal as i32, code: code as i32, address: address as usize }),
        }
    }};
}

/// Loads a byte to which no reference leads.
pub fn load(address: usize) -> Result<u8, Fault> {
    let mut value = 0u8;
    attempt!("mov {value}, [{at}]", at = in(reg) address, value = inout(reg_byte) value)
        .map(|()| value)
}

/// Stores one.
pub fn store(address: usize, value: u8) -> Result<(), Fault> {
    attempt!("mov [{at}], {value}", at = in(reg) address, value = in(reg_byte) value)
}

/// Stores a word.
pub fn store_word(address: usize, value: u64) -> Result<(), Fault> {
    attempt!("mov [{at}], {value}", at = in(reg) address, value = in(reg) value)
}

/// Calls what is there: a `ret`.
pub fn call(address: usize) -> Result<(), Fault> {
    attempt!("call {at}", at = in(reg) address, clobber_abi("C"))
}
