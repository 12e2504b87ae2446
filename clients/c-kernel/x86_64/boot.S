// From the loader to C: the boot CPU by PVH (Xen's "x86/HVM direct boot ABI": 32-bit protected mode, paging off, EBX = start info), the others
// from real mode. All run on the same page tables, which map the first 4 GiB to themselves, and get their numbers as they arrive.
#include "kernel.h"
#define START 0x8000            // where other CPUs start: the page that the start-up IPI names
#define AT(symbol) (START + (symbol) - start_of_others)

// PAE; the tables; EFER.LME; paging with write protection (SDM vol. 3A, "Initializing IA-32e Mode"); 64-bit code.
.macro enter_long_mode
    movl $(1 << 5), %eax
    movl %eax, %cr4
    movl $boot_root, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $(1 << 8), %eax
    wrmsr
    movl $(1 << 31 | 1 << 16 | 1), %eax
    movl %eax, %cr0
    ljmpl $0x08, $arrive
.endm

    // The note by which the loader finds the entry: owner "Xen", type 18 (PHYS32_ENTRY).
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad pvh_entry

    .text
    .code32
    .global pvh_entry, start_of_others, end_of_others, vectors, probe, probe_fault
pvh_entry:
    cli
    cld
    movl %ebx, start_info
    lgdt gdt_pointer
    enter_long_mode

    .code64
arrive:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %ss
    movl $1, %edi
    lock xaddl %edi, arrived        // the number of this CPU
    cmpl $MAX_CPUS, %edi
    jae 1f
    leal 1(%rdi), %eax
    imull $STACK_BYTES, %eax
    leaq stacks(%rax), %rsp
    call cpu_main
1:  hlt
    jmp 1b

    // Copied to START; from real mode at once.
    .code16
start_of_others:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl AT(start_gdt_pointer)
    enter_long_mode
start_gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt
end_of_others:

    // 48 entries of 16 bytes: an error code (the processor's own for the vectors in the mask), the vector, and what is common.
    .code64
    .balign 16
vectors:
    i = 0
    .rept 48
    .if ((0x60227d00 >> i) & 1) == 0
    pushq $0
    .endif
    pushq $i
    jmp common
    i = i + 1
    .fill vectors + i * 16 - ., 1, 0xcc
    .endr
common:
    .irp register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
    pushq %\register
    .endr
    movq %rsp, %rdi
    cld
    call trap
    .irp register, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
    popq %\register
    .endr
    addq $16, %rsp
    iretq

    // uint64_t probe(uintptr_t address): what is there, or PROBE_FAULT where nothing is mapped: `trap` skips the load.
probe:
    movq (%rdi), %rax
    ret
probe_fault:
    movq $PROBE_FAULT, %rax
    ret

    .data
    .balign 4096
    .global boot_root, arrived, start_info
boot_root:
    .quad boot_table + 3
    .fill 511, 8, 0
boot_table:
    .quad boot_directories + 3, boot_directories + 0x1003, boot_directories + 0x2003, boot_directories + 0x3003
    .fill 508, 8, 0
boot_directories:                   // 2048 pages of 2 MiB, the last 32 MiB uncached: devices
    i = 0
    .rept 2048
    .quad i * 0x200000 + 0x83 + (i / 2032) * 0x10
    i = i + 1
    .endr
gdt:
    .quad 0
    .quad 0x00af9b000000ffff        // 0x08: 64-bit code
    .quad 0x00cf93000000ffff        // 0x10: data
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt
arrived: .long 0
start_info: .long 0
    .bss
    .balign 16
stacks: .skip MAX_CPUS * STACK_BYTES
