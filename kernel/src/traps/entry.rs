//! Assembles `entry.s`.

use core::arch::global_asm;
use core::mem::offset_of;

use super::dispatch;
use crate::arch::descriptors::{USER_CS, USER_SS};
use crate::arch::percpu::{KERNEL_STACK, USER_RSP};
use crate::arch::smap;
use crate::arch::trap::TrapFrame;

global_asm!(
    include_str!("entry.s"),
    clac = const smap::CLAC,
    cs = const offset_of!(TrapFrame, cs),
    user_cs = const USER_CS,
    user_ss = const USER_SS,
    user_rsp = const USER_RSP,
    kernel_stack = const KERNEL_STACK,
    syscall_vector = const TrapFrame::SYSCALL,
    trap = sym dispatch::trap,
    trap_paranoid = sym dispatch::trap_paranoid,
    syscall = sym dispatch::syscall,
    options(att_syntax),
);
