// From the firmware to C: each hart begins here with its id in a0 and without translation, the boot hart first; they get their numbers as they arrive.
#include "kernel.h"

    .section .text.start, "ax"      // the firmware jumps to the first byte
    .global start
start:
    csrw sscratch, a0               // the hart's id, for cpu_start
    li t0, 3 << 13
    csrc sstatus, t0                // FS is Off: who uses floating point, here or in the library, has an exception; so traps save none of its registers
    la t0, arrived
    li t1, 1
    amoadd.w tp, t1, (t0)           // the number of this CPU
    li t0, MAX_CPUS
    bgeu tp, t0, 1f
    addi t0, tp, 1
    li t1, STACK_BYTES
    mul t0, t0, t1
    la sp, stacks
    add sp, sp, t0
    mv a0, tp
    call cpu_main
1:  wfi
    j 1b

    .text
    .global trap_entry, probe, probe_fault
    .balign 4
trap_entry:                         // a trap in a trap: sepc and sstatus are on the stack, too
    addi sp, sp, -144
    i = 0
    .irp register, ra, t0, t1, t2, t3, t4, t5, t6, a0, a1, a2, a3, a4, a5, a6, a7
    sd \register, i(sp)
    i = i + 8
    .endr
    csrr a0, scause
    csrr a1, sepc
    csrr t0, sstatus
    sd t0, 128(sp)
    call trap
    csrw sepc, a0
    ld t0, 128(sp)
    csrw sstatus, t0
    i = 0
    .irp register, ra, t0, t1, t2, t3, t4, t5, t6, a0, a1, a2, a3, a4, a5, a6, a7
    ld \register, i(sp)
    i = i + 8
    .endr
    addi sp, sp, 144
    sret

    // uint64_t probe(uintptr_t address): what is there, or PROBE_FAULT where nothing is mapped: `trap` skips the load.
probe:
    ld a0, (a0)
    ret
probe_fault:
    li a0, PROBE_FAULT
    ret

    .data
    .balign 4096
    .global boot_root
boot_root:                          // pages of 1 GiB where they are: devices, and memory with X
    .quad 0xc7, 0, 0x80000000 >> 2 | 0xcf
    .fill 509, 8, 0
arrived: .long 0
    .bss
    .balign 16
stacks: .skip MAX_CPUS * STACK_BYTES
