//! The interrupted registers.

use crate::arch::descriptors::{USER_CS, USER_SS};

/// Carry, parity, adjust, zero, sign, trap, direction, overflow, resume, alignment check, id: what
/// ring 3 may set in RFLAGS (SDM vol. 1, "EFLAGS Register").
const USER_FLAGS: u64 = 0x0025_0dd5;
/// Interrupts enabled, and the bit that is always 1.
const FIXED_FLAGS: u64 = 0x0202;

/// The interrupted registers, in the order in which the entry stubs push them.
///
/// The same for system calls, where `rcx` and `r11` hold what SYSCALL put there and
/// `vector` is [`TrapFrame::SYSCALL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "registers")]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    /// Vector number.
    pub vector: u64,
    /// The processor's error code, 0 where there is none. System calls: the number asked for, as
    /// Linux keeps `orig_rax`.
    pub error_code: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl TrapFrame {
    /// Value of `vector` for system calls: no hardware vector.
    pub const SYSCALL: u64 = 0x100;

    /// All registers 0.
    pub const ZERO: Self = Self {
        r15: 0,
        r14: 0,
        r13: 0,
        r12: 0,
        r11: 0,
        r10: 0,
        r9: 0,
        r8: 0,
        rdi: 0,
        rsi: 0,
        rbp: 0,
        rbx: 0,
        rdx: 0,
        rcx: 0,
        rax: 0,
        vector: 0,
        error_code: 0,
        rip: 0,
        cs: 0,
        rflags: 0,
        rsp: 0,
        ss: 0,
    };

    /// Whether the frame came from ring 3.
    pub const fn is_from_user(&self) -> bool {
        self.cs & 3 == 3
    }

    /// A frame that starts a program at `rip` with stack `rsp`: user segments, interrupts on, all
    /// other registers 0.
    pub fn user(rip: usize, rsp: usize) -> Self {
        Self {
            vector: Self::SYSCALL,
            rip: rip as u64,
            cs: u64::from(USER_CS),
            rflags: FIXED_FLAGS,
            rsp: rsp as u64,
            ss: u64::from(USER_SS),
            ..Self::default()
        }
    }

    /// Leaves nothing in it that ring 3 may not choose.
    pub fn sanitize(&mut self) {
        self.cs = u64::from(USER_CS);
        self.ss = u64::from(USER_SS);
        self.rflags = self.rflags & USER_FLAGS | FIXED_FLAGS;
    }
}
