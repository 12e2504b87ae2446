//! Assembles `entry.s`.

use core::arch::global_asm;
use core::mem::offset_of;

use super::dispatch;
use crate::arch::descriptors::{USER_CS, USER_SS};
#[cfg(feature = "isolation")]
use crate::arch::isolation::{IRET_FRAME, IRET_FRAME_AT, KERNEL_CR3, USER_CR3};
use crate::arch::percpu::{KERNEL_STACK, USER_RSP};
use crate::arch::smap;
use crate::arch::trap::TrapFrame;

#[cfg(not(feature = "isolation"))]
use nowhere::{IRET_FRAME, IRET_FRAME_AT, KERNEL_CR3, USER_CR3};

/// For text that is left out.
#[cfg(not(feature = "isolation"))]
mod nowhere {
    pub const IRET_FRAME: usize = 0;
    pub const IRET_FRAME_AT: usize = 0;
    pub const KERNEL_CR3: usize = 0;
    pub const USER_CR3: usize = 0;
}

global_asm!(
    include_str!("entry.s"),
    clac = const smap::CLAC,
    cs = const offset_of!(TrapFrame, cs),
    user_cs = const USER_CS,
    user_ss = const USER_SS,
    isolation = const cfg!(feature = "isolation") as u8,
    user_rsp = const USER_RSP,
    kernel_cr3 = const KERNEL_CR3,
    user_cr3 = const USER_CR3,
    iret_frame = const IRET_FRAME,
    iret_frame_at = const IRET_FRAME_AT,
    kernel_stack = const KERNEL_STACK,
    syscall_vector = const TrapFrame::SYSCALL,
    trap = sym dispatch::trap,
    trap_paranoid = sym dispatch::trap_paranoid,
    syscall = sym dispatch::syscall,
    options(att_syntax),
);
