//! First instructions, and traps.

use core::arch::{asm, global_asm};

use super::{KERNEL_ROOT, MAIR, MMU_AND_CACHES, TCR, gic};
use crate::arch::{probe_fault, probe_word};
use crate::cpus::{self, STACK_BYTES};

global_asm!(
    r#"
.section .text.entry
.globl _start
_start:
    mov x0, #0
.globl start_other
start_other:
    adrp x1, {root}
    add x1, x1, :lo12:{root}
    msr ttbr0_el1, x1
    msr ttbr1_el1, x1
    ldr x1, ={mair}
    msr mair_el1, x1
    ldr x1, ={tcr}
    msr tcr_el1, x1
    isb
    tlbi vmalle1
    dsb nsh
    mrs x1, sctlr_el1
    ldr x2, ={mmu}
    orr x1, x1, x2
    ldr x2, =high
    msr sctlr_el1, x1
    isb
    br x2
.ltorg
high:
    adrp x1, STACKS
    add x1, x1, :lo12:STACKS
    add x2, x0, #1
    lsl x2, x2, #{shift}
    add x1, x1, x2
    mov sp, x1
    msr tpidr_el1, x0
    adrp x1, vectors
    add x1, x1, :lo12:vectors
    msr vbar_el1, x1
    b {begin}
.balign 2048
vectors:
.rept 16
.balign 128
    sub sp, sp, #176
    stp x0, x1, [sp]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x30, [sp, #144]
    adr x0, .
    b trap
.endr
trap:
    ubfx x0, x0, #7, #4
    mrs x1, elr_el1
    mrs x2, spsr_el1
    stp x1, x2, [sp, #160]
    bl {on_trap}
    msr elr_el1, x0
    ldr x1, [sp, #168]
    msr spsr_el1, x1
    ldp x0, x1, [sp]
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x30, [sp, #144]
    add sp, sp, #176
    eret
.globl probe_word
.globl probe_fault
probe_word:
    ldr x0, [x0]
    mov x1, #1
    ret
probe_fault:
    mov x1, #0
    ret
"#,
    root = sym KERNEL_ROOT,
    mair = const MAIR,
    tcr = const TCR,
    mmu = const MMU_AND_CACHES,
    shift = const STACK_BYTES.trailing_zeros(),
    begin = sym begin,
    on_trap = sym on_trap,
);

unsafe extern "C" {
    fn start_other();
}

/// Vectors of this level with its stack (DDI 0487, D1.4): synchronous, interrupt.
const SYNCHRONOUS: usize = 4;
const INTERRUPT: usize = 5;
/// ESR_EL1.EC: a data abort at this level.
const DATA_ABORT: usize = 0x25;

/// Where another CPU begins; it has its number in x0.
pub fn other() -> usize {
    start_other as *const () as usize
}

extern "C" fn begin(cpu: usize) -> ! {
    match cpu {
        0 => crate::boot(),
        _ => cpus::begin(),
    }
}

/// Returns where to go on.
extern "C" fn on_trap(vector: usize, at: usize) -> usize {
    let syndrome: usize;
    // SAFETY: it reads.
    unsafe { asm!("mrs {}, esr_el1", out(reg) syndrome) };
    match vector {
        INTERRUPT => {
            gic::serve();
            at
        }
        SYNCHRONOUS if syndrome >> 26 == DATA_ABORT && at == probe_word as *const () as usize => {
            probe_fault as *const () as usize
        }
        _ => panic!("trap {vector} at {at:#x}: {syndrome:#x}"),
    }
}
