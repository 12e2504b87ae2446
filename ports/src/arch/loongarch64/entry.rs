//! First instructions, refills and traps.

use core::arch::global_asm;

use shootdown_loongarch::entry::Fault;
use shootdown_loongarch::irq;

use super::{IPI, IPIS, SHOOTDOWN_VECTOR, TIMER, is_spurious, read_csr, write_csr};
use crate::arch::{probe_fault, probe_word};
use crate::cpus::{self, STACK_BYTES};
use crate::platform;

// Registers: CRMD 0x0, PRMD 0x1, ECFG 0x4, ESTAT 0x5, ERA 0x6, BADV 0x7, EENTRY 0xc, CPUID 0x20, TICLR 0x44, DMW0 and 1 0x180 and 0x181. In QEMU 7.2 all CPUs start here, later only the first;
// the others have mail (IOCSR 0x1020) before they go on. Until CRMD.PG is set the upper bits of addresses mean nothing.
global_asm!(
    r#"
.section .text.entry,"ax"
.globl _start
_start:
    csrrd $t0, 0x20
    andi $t0, $t0, 0x3ff
    beqz $t0, 2f
1:  li.w $t1, 0x1020
    iocsrrd.w $t2, $t1
    beqz $t2, 1b
2:  lu52i.d $t1, $zero, -0x800
    ori $t1, $t1, 0x1
    csrwr $t1, 0x180
    lu52i.d $t1, $zero, -0x700
    ori $t1, $t1, 0x11
    csrwr $t1, 0x181
    la.pcrel $t0, 3f
    lu52i.d $t1, $zero, -0x700
    or $t0, $t0, $t1
    jr $t0
3:  li.w $t1, 0xb0
    csrwr $t1, 0x0
    csrrd $a0, 0x20
    andi $a0, $a0, 0x3ff
    move $r21, $a0
    la.pcrel $sp, STACKS
    addi.d $t0, $a0, 1
    slli.d $t0, $t0, {shift}
    add.d $sp, $sp, $t0
    la.pcrel $t0, trap
    csrwr $t0, 0xc
    li.w $t0, 0
    csrwr $t0, 0x4
    b {begin}
.balign 4096
trap:
    addi.d $sp, $sp, -176
    st.d $ra, $sp, 0
    st.d $t0, $sp, 8
    st.d $t1, $sp, 16
    st.d $t2, $sp, 24
    st.d $t3, $sp, 32
    st.d $t4, $sp, 40
    st.d $t5, $sp, 48
    st.d $t6, $sp, 56
    st.d $t7, $sp, 64
    st.d $t8, $sp, 72
    st.d $a0, $sp, 80
    st.d $a1, $sp, 88
    st.d $a2, $sp, 96
    st.d $a3, $sp, 104
    st.d $a4, $sp, 112
    st.d $a5, $sp, 120
    st.d $a6, $sp, 128
    st.d $a7, $sp, 136
    csrrd $a0, 0x6
    csrrd $t0, 0x1
    st.d $t0, $sp, 144
    bl {on_trap}
    csrwr $a0, 0x6
    ld.d $t0, $sp, 144
    csrwr $t0, 0x1
    ld.d $ra, $sp, 0
    ld.d $t0, $sp, 8
    ld.d $t1, $sp, 16
    ld.d $t2, $sp, 24
    ld.d $t3, $sp, 32
    ld.d $t4, $sp, 40
    ld.d $t5, $sp, 48
    ld.d $t6, $sp, 56
    ld.d $t7, $sp, 64
    ld.d $t8, $sp, 72
    ld.d $a0, $sp, 80
    ld.d $a1, $sp, 88
    ld.d $a2, $sp, 96
    ld.d $a3, $sp, 104
    ld.d $a4, $sp, 112
    ld.d $a5, $sp, 120
    ld.d $a6, $sp, 128
    ld.d $a7, $sp, 136
    addi.d $sp, $sp, 176
    ertn
.globl probe_word
.globl probe_again
.globl probe_fault
probe_word:
    ld.d $a0, $a0, 0
    li.w $a1, 1
    ret
probe_again:
    ld.d $a0, $a0, 0
    li.w $a1, 1
    ret
probe_fault:
    li.w $a1, 0
    ret
"#,
    shift = const STACK_BYTES.trailing_zeros(),
    begin = sym begin,
    on_trap = sym on_trap,
);

unsafe extern "C" {
    fn _start() -> !;
    fn probe_again();
}

/// ESTAT.Ecode: an interrupt; an invalid page is loaded.
const INTERRUPT: usize = 0;
const INVALID_LOAD: usize = 1;

/// Where a CPU begins.
pub fn start() -> usize {
    _start as *const () as usize
}

/// Begins again, with mail. Interrupts are off.
pub fn begin_again() -> ! {
    // SAFETY: it uses nothing of what was before.
    unsafe { _start() }
}

extern "C" fn begin(cpu: usize) -> ! {
    match cpu {
        0 => crate::boot(),
        _ => cpus::begin(),
    }
}

/// Returns where to go on.
extern "C" fn on_trap(at: usize) -> usize {
    let status = read_csr!(0x5);
    match status >> 16 & 0x3f {
        INTERRUPT => {
            // SAFETY: 1. there is no other vector.
            if status & IPIS != 0 && unsafe { IPI.acknowledge() } & SHOOTDOWN_VECTOR.mask() != 0 {
                platform::on_ipi();
            }
            if status & TIMER != 0 {
                // TICLR.
                write_csr!(0x44, 1);
                platform::on_timer();
            }
            irq::resume_address(at)
        }
        // Invalid pages are cached, so the tables are asked; once, and then the page has become invalid again.
        INVALID_LOAD if at == probe_word as *const () as usize => {
            match is_spurious(Fault::Load, read_csr!(0x7)) {
                true => probe_again as *const () as usize,
                false => probe_fault as *const () as usize,
            }
        }
        INVALID_LOAD if at == probe_again as *const () as usize => {
            probe_fault as *const () as usize
        }
        _ => panic!("trap {status:#x} at {at:#x}, {:#x}", read_csr!(0x7)),
    }
}
