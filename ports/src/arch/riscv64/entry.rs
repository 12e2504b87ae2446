//! First instructions, and traps.

use core::arch::global_asm;

use super::{IPI, begin_boot};
use crate::arch::{probe_fault, probe_word};
use crate::cpus::{self, STACK_BYTES};
use crate::platform;

/// scause of a load page fault, of a supervisor software interrupt, and of a timer's.
const LOAD_FAULT: usize = 13;
const SOFTWARE_INTERRUPT: usize = 1 << 63 | 1;
const TIMER_INTERRUPT: usize = 1 << 63 | 5;

global_asm!(
    r#"
.section .text.entry
.globl _start
_start:
    li tp, 0
    la sp, STACKS
    li t0, {stack}
    add sp, sp, t0
    la t0, trap_entry
    csrw stvec, t0
    tail {begin_boot}
.globl start_other
start_other:
    mv tp, a1
    la sp, STACKS
    addi t0, a1, 1
    slli t0, t0, {shift}
    add sp, sp, t0
    la t0, trap_entry
    csrw stvec, t0
    tail {begin}
.align 2
trap_entry:
    addi sp, sp, -144
    sd ra, 0(sp); sd t0, 8(sp); sd t1, 16(sp); sd t2, 24(sp); sd t3, 32(sp); sd t4, 40(sp); sd t5, 48(sp); sd t6, 56(sp)
    sd a0, 64(sp); sd a1, 72(sp); sd a2, 80(sp); sd a3, 88(sp); sd a4, 96(sp); sd a5, 104(sp); sd a6, 112(sp); sd a7, 120(sp)
    csrr a0, scause
    csrr a1, sepc
    sd a1, 128(sp)
    csrr t0, sstatus
    sd t0, 136(sp)
    call {on_trap}
    csrw sepc, a0
    ld t0, 136(sp)
    csrw sstatus, t0
    ld ra, 0(sp); ld t0, 8(sp); ld t1, 16(sp); ld t2, 24(sp); ld t3, 32(sp); ld t4, 40(sp); ld t5, 48(sp); ld t6, 56(sp)
    ld a0, 64(sp); ld a1, 72(sp); ld a2, 80(sp); ld a3, 88(sp); ld a4, 96(sp); ld a5, 104(sp); ld a6, 112(sp); ld a7, 120(sp)
    addi sp, sp, 144
    sret
.globl probe_word
.globl probe_fault
probe_word:
    ld a0, 0(a0)
    li a1, 1
    ret
probe_fault:
    li a1, 0
    ret
"#,
    stack = const STACK_BYTES,
    shift = const STACK_BYTES.trailing_zeros(),
    begin_boot = sym begin_boot,
    begin = sym cpus::begin,
    on_trap = sym on_trap,
);

unsafe extern "C" {
    fn start_other();
}

/// Where another CPU begins; it has its number in a1.
pub fn other() -> usize {
    start_other as *const () as usize
}

/// Returns where to go on.
extern "C" fn on_trap(cause: usize, at: usize) -> usize {
    match cause {
        SOFTWARE_INTERRUPT => {
            IPI.acknowledge();
            platform::on_ipi();
        }
        TIMER_INTERRUPT => {
            // Not pending any more.
            super::set_timer(u64::MAX / 2);
            platform::on_timer();
        }
        LOAD_FAULT if at == probe_word as *const () as usize => {
            return probe_fault as *const () as usize;
        }
        _ => panic!("trap {cause:#x} at {at:#x}"),
    }
    at
}
