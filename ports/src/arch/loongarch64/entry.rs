//! First instructions, refills and traps.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use super::read_csr;
use crate::cpus::{MAX_CPUS, STACK_BYTES};
use crate::platform::SHOOTDOWN;

/// How many translations each CPU has refilled.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Refills(AtomicU64);

/// The handler finds its own by KSAVE1.
#[unsafe(no_mangle)]
pub static REFILLS: [Refills; MAX_CPUS] = [const { Refills(AtomicU64::new(0)) }; MAX_CPUS];

// Registers: CRMD 0x0, ECFG 0x4, ERA 0x6, PRMD 0x1, EENTRY 0xc, PGD 0x1b, CPUID 0x20, KSAVE1 and 2 0x31 and 0x32, TLBRENTRY 0x88, TLBRSAVE 0x8b, TLBRELO0 and 1 0x8c and
// 0x8d, DMW0 0x180. In QEMU 7.2 all CPUs start here, and all but the first wait for mail (IOCSR 0x1020). Memory is translated from where it is by DMW0; CRMD.PG.
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
2:  li.d $t1, 0x11
    csrwr $t1, 0x180
    li.w $t1, 0xb0
    csrwr $t1, 0x0
    csrrd $a0, 0x20
    andi $a0, $a0, 0x3ff
    move $r21, $a0
    la.pcrel $sp, STACKS
    addi.d $t0, $a0, 1
    slli.d $t0, $t0, {shift}
    add.d $sp, $sp, $t0
    slli.d $t0, $a0, 6
    la.pcrel $t1, REFILLS
    add.d $t0, $t0, $t1
    csrwr $t0, 0x31
    la.pcrel $t0, refill
    csrwr $t0, 0x88
    la.pcrel $t0, trap
    csrwr $t0, 0xc
    li.w $t0, 0
    csrwr $t0, 0x4
    b {begin}
.balign 4096
refill:
    csrwr $t0, 0x8b
    csrwr $t1, 0x32
    csrrd $t1, 0x31
    ld.d $t0, $t1, 0
    addi.d $t0, $t0, 1
    st.d $t0, $t1, 0
    csrrd $t0, 0x1b
    lddir $t0, $t0, 3
    beqz $t0, 1f
    lddir $t0, $t0, 1
    beqz $t0, 1f
    ldpte $t0, 0
    ldpte $t0, 1
    b 2f
1:  csrwr $zero, 0x8c
    csrwr $zero, 0x8d
2:  tlbfill
    csrrd $t1, 0x32
    csrrd $t0, 0x8b
    ertn
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
.globl probe_fault
probe_word:
    ld.d $a0, $a0, 0
    li.w $a1, 1
    ret
probe_fault:
    li.w $a1, 0
    ret
"#,
    shift = const STACK_BYTES.trailing_zeros(),
    begin = sym super::begin,
    on_trap = sym on_trap,
);

unsafe extern "C" {
    fn probe_word(address: usize) -> Probe;
    fn probe_fault();
}

#[repr(C)]
struct Probe {
    word: u64,
    is_mapped: usize,
}

/// ESTAT.Ecode: an interrupt; an invalid page is loaded.
const INTERRUPT: usize = 0;
const INVALID_LOAD: usize = 1;
/// ESTAT.IS: from another CPU.
const IPI: usize = 1 << 12;
/// IOCSR: interrupts from other CPUs that are no more pending.
const IPI_CLEAR: usize = 0x100c;

/// What the handler has counted.
pub fn refills(cpu: usize) -> u64 {
    REFILLS[cpu].0.load(Ordering::Relaxed)
}

/// The word at an address, if it is mapped.
pub fn probe(address: usize) -> Option<u64> {
    // SAFETY: a fault there ends it.
    let found = unsafe { probe_word(address) };
    (found.is_mapped != 0).then_some(found.word)
}

/// Returns where to go on.
extern "C" fn on_trap(at: usize) -> usize {
    let status = read_csr!(0x5);
    match status >> 16 & 0x3f {
        INTERRUPT if status & IPI != 0 => {
            // Before the engine looks: what comes later interrupts again.
            super::write_iocsr(IPI_CLEAR, u32::MAX.into());
            SHOOTDOWN.handle_ipi();
            at
        }
        INVALID_LOAD if at == probe_word as *const () as usize => probe_fault as *const () as usize,
        _ => panic!("trap {status:#x} at {at:#x}, {:#x}", read_csr!(0x7)),
    }
}
