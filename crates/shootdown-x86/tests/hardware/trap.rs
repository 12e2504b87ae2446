//! A stand-in for CPL 0. At CPL 3 privileged instructions raise #GP (INVPCID #UD where it is missing, those of VMX #UD outside of VMX operation), which Linux
//! turns into a signal; the handler writes down what was asked for, answers reads, and goes on behind.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libc::{SIGILL, SIGSEGV, greg_t, siginfo_t, ucontext_t};

/// What an instruction asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    ReadMsr(u32),
    WriteMsr(u32, u64),
    ReadControl(u8),
    WriteControl(u8, u64),
    Invlpg(u64),
    /// The type, and both halves of the descriptor.
    Invpcid(u64, [u64; 2]),
    Invept(u64, [u64; 2]),
    Invvpid(u64, [u64; 2]),
    /// The field, and the value.
    VmWrite(u64, u64),
    Cli,
    Sti,
}

/// Instructions of VMX fail that name one of these: as without a current VMCS, by CF, and as with one, by ZF. All others succeed.
pub const INVALID: [u64; 2] = [0xbad_0000, 0xbad_1000];

/// What all reads get: no two bytes are alike.
pub const ANSWER: u64 = 0x0123_4567_89ab_cdef;

static OPS: Mutex<Vec<Op>> = Mutex::new(Vec::new());

/// The instructions that need CPL 0, of all that `act` runs. One caller at a time.
pub fn trapped<R>(act: impl FnOnce() -> R) -> (R, Vec<Op>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static HANDLER: Once = Once::new();
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    HANDLER.call_once(install);
    ops().clear();
    let result = act();
    (result, std::mem::take(&mut *ops()))
}

/// Never held while an instruction traps.
fn ops() -> MutexGuard<'static, Vec<Op>> {
    OPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn install() {
    for signal in [SIGSEGV, SIGILL] {
        // SAFETY: all zeros is a value of this type: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the signature that SA_SIGINFO wants.
        let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        assert_eq!(result, 0);
    }
}

/// Runs on the thread that trapped, instead of the instruction.
extern "C" fn on_fault(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the third argument is this, and nobody else has it.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let mut decoder = Decoder {
        registers: &mut context.uc_mcontext.gregs,
        rex: 0,
        length: 0,
    };
    match decoder.instruction() {
        Some(op) => {
            decoder.registers[libc::REG_RIP as usize] += decoder.length as greg_t;
            ops().push(op);
        }
        // A real fault: without a handler it comes again and ends the process.
        None => {
            // SAFETY: the default is always allowed.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

struct Decoder<'a> {
    registers: &'a mut [greg_t; 23],
    rex: u8,
    length: usize,
}

impl Decoder<'_> {
    fn instruction(&mut self) -> Option<Op> {
        let mut byte = self.next();
        if byte == 0x66 {
            byte = self.next();
        }
        if byte & 0xf0 == 0x40 {
            self.rex = byte;
            byte = self.next();
        }
        match byte {
            0xfa => Some(Op::Cli),
            0xfb => Some(Op::Sti),
            0x0f => self.extended(),
            _ => None,
        }
    }

    fn extended(&mut self) -> Option<Op> {
        match self.next() {
            0x30 => {
                let halves = [2, 0].map(|number| *self.register(number) as u64 & 0xffff_ffff);
                let msr = *self.register(1) as u32;
                Some(Op::WriteMsr(msr, halves[0] << 32 | halves[1]))
            }
            0x32 => {
                *self.register(2) = (ANSWER >> 32) as greg_t;
                *self.register(0) = (ANSWER & 0xffff_ffff) as greg_t;
                Some(Op::ReadMsr(*self.register(1) as u32))
            }
            0x20 => {
                let (control, general) = self.control_and_general();
                *self.register(general) = ANSWER as greg_t;
                Some(Op::ReadControl(control))
            }
            0x22 => {
                let (control, general) = self.control_and_general();
                Some(Op::WriteControl(control, *self.register(general) as u64))
            }
            0x01 => match self.operands()? {
                (7, address) => Some(Op::Invlpg(address)),
                _ => None,
            },
            0x38 => self.invalidation(),
            0x79 => {
                let (field, general) = self.control_and_general();
                let value = *self.register(general) as u64;
                self.set_status(value);
                Some(Op::VmWrite(*self.register(field) as u64, value))
            }
            _ => None,
        }
    }

    fn invalidation(&mut self) -> Option<Op> {
        let which = self.next();
        let (number, address) = self.operands()?;
        // SAFETY: the operand of the instruction, which the compiler provides.
        let descriptor = unsafe { (address as *const [u64; 2]).read() };
        let kind = *self.register(number) as u64;
        if which != 0x82 {
            self.set_status(descriptor[0]);
        }
        match which {
            0x80 => Some(Op::Invept(kind, descriptor)),
            0x81 => Some(Op::Invvpid(kind, descriptor)),
            0x82 => Some(Op::Invpcid(kind, descriptor)),
            _ => None,
        }
    }

    /// The flags as an instruction of VMX leaves them that names this.
    fn set_status(&mut self, named: u64) {
        const CARRY: greg_t = 1;
        const ZERO: greg_t = 1 << 6;
        const ALL: greg_t = 0x8d5;
        let status = match INVALID.iter().position(|&invalid| invalid == named) {
            Some(0) => CARRY,
            Some(_) => ZERO,
            None => 0,
        };
        let flags = &mut self.registers[libc::REG_EFL as usize];
        *flags = *flags & !ALL | status;
    }

    /// The next byte of the instruction.
    fn next(&mut self) -> u8 {
        let address = self.registers[libc::REG_RIP as usize] as usize + self.length;
        self.length += 1;
        // SAFETY: the processor has fetched it.
        unsafe { (address as *const u8).read() }
    }

    /// A general register by the number that instructions have for it.
    fn register(&mut self, number: u8) -> &mut greg_t {
        use libc::{
            REG_R8, REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RSI, REG_RSP,
        };
        const LOW: [c_int; 8] = [
            REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
        ];
        let index = match LOW.get(usize::from(number)) {
            Some(&index) => index,
            None => REG_R8 + c_int::from(number) - 8,
        };
        &mut self.registers[index as usize]
    }

    /// A bit of the REX prefix, as the top bit of a register's number.
    fn extension(&self, bit: u8) -> u8 {
        (self.rex >> bit & 1) << 3
    }

    fn control_and_general(&mut self) -> (u8, u8) {
        let modrm = self.next();
        let control = modrm >> 3 & 7 | self.extension(2);
        (control, modrm & 7 | self.extension(0))
    }

    /// A register's number, and the address in memory: a base register, perhaps a small displacement.
    fn operands(&mut self) -> Option<(u8, u64)> {
        let modrm = self.next();
        let register = modrm >> 3 & 7 | self.extension(2);
        let mut base = modrm & 7;
        if base == 4 {
            let sib = self.next();
            if sib >> 3 & 7 != 4 {
                return None;
            }
            base = sib & 7;
        }
        let displacement = match modrm >> 6 {
            0 if base != 5 => 0,
            1 => greg_t::from(self.next() as i8),
            _ => return None,
        };
        let base = base | self.extension(0);
        Some((register, (*self.register(base) + displacement) as u64))
    }
}
