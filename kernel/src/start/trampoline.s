# Where other CPUs start: real mode, CS:IP = page:0, after INIT and start-up IPIs. Copied to a page
# below 1 MiB; the boot CPU fills in the three absolute addresses once, as several CPUs run this at
# the same time. Assembled behind `entry.s`, whose macros it uses.

.pushsection .rodata.trampoline, "a"
.balign 16
.code16
.global trampoline_start
trampoline_start:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    xorl %ebx, %ebx
    movw %ax, %bx
    shll $4, %ebx
    lgdtl trampoline_gdt_pointer - trampoline_start
    movl %cr0, %eax
    orl $1, %eax
    # Caches are off after INIT: clear CD and NW (SDM vol. 3A, "Processor State After Reset").
    andl $0x9fffffff, %eax
    movl %eax, %cr0
    ljmpl *(trampoline_to_32 - trampoline_start)

.code32
trampoline_32:
    load_data_segments
    enable_long_mode
    ljmpl *(trampoline_to_64 - trampoline_start)(%ebx)

.code64
trampoline_64:
    movabsq $ap_high_half, %rax
    jmp *%rax

.balign 8
trampoline_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff    # 0x08: 32-bit code
    .quad 0x00cf93000000ffff    # 0x10: data
    .quad 0x00af9b000000ffff    # 0x18: 64-bit code
trampoline_gdt_pointer:
    .word . - trampoline_gdt - 1
.global trampoline_gdt_base
trampoline_gdt_base:
    .long trampoline_gdt - trampoline_start
.global trampoline_to_32
trampoline_to_32:
    .long trampoline_32 - trampoline_start
    .word 0x08
.global trampoline_to_64
trampoline_to_64:
    .long trampoline_64 - trampoline_start
    .word 0x18
.global trampoline_end
trampoline_end:
.popsection
