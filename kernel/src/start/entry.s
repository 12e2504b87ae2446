# From the loader's 32-bit protected mode to 64-bit code in the kernel's half.
#
# State on entry (Xen's "x86/HVM direct boot ABI"; Multiboot2 is alike): flat 32-bit segments, paging off,
# interrupts off, EBX = physical address of the start info. Code here runs at its physical address until
# `high_half`, so every symbol is used as `symbol - KERNEL_BASE`.

.set KERNEL_BASE, 0xffffffff80000000
.set PRESENT_WRITE, 0x3
.set HUGE, 0x80

# PAE, then EFER.LME and EFER.NXE, then paging with write protection (SDM vol. 3A, "Initializing
# IA-32e Mode").
.macro enable_long_mode
    movl %cr4, %eax
    orl $(1 << 5), %eax
    movl %eax, %cr4
    movl $(boot_pml4 - KERNEL_BASE), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $(1 << 8 | 1 << 11), %eax
    wrmsr
    movl %cr0, %eax
    orl $(1 << 31 | 1 << 16), %eax
    movl %eax, %cr0
.endm

.macro load_data_segments
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
.endm

.macro load_segments
    load_data_segments
    xorl %eax, %eax
    movw %ax, %fs
    movw %ax, %gs
.endm

# The note by which the loader finds the entry: owner "Xen", type 18 (PHYS32_ENTRY). Aligned to 4:
# QEMU takes the segment's alignment for that of the note's fields.
.pushsection .note.pvh, "a", @note
.balign 4
.long 4
.long 8
.long 18
.asciz "Xen"
.quad pvh_entry - KERNEL_BASE
.popsection

# The header by which Multiboot2 loaders (GRUB) find the entry: magic, 32-bit protected mode, length,
# checksum; a tag with the entry's address; the end tag. In the first 32 KiB of the file (linker.ld).
.pushsection .multiboot2, "a"
.balign 8
multiboot_header:
.long 0xe85250d6
.long 0
.long multiboot_header_end - multiboot_header
.long 0x100000000 - (0xe85250d6 + (multiboot_header_end - multiboot_header))
.word 3, 0
.long 12
.long multiboot_entry - KERNEL_BASE
.balign 8
.word 0, 0
.long 8
multiboot_header_end:
.popsection

.pushsection .bss.boot, "aw", @nobits
.balign 4096
.global boot_pml4
boot_pml4: .skip 4096
boot_pdpt_low: .skip 4096
boot_pdpt_high: .skip 4096
boot_directories: .skip 4 * 4096
.popsection

.pushsection .data.boot, "aw"
.balign 8
.global boot_tsc
boot_tsc: .quad 0
# What EAX said at entry by Multiboot2; 0 by PVH.
multiboot_magic: .long 0
.balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff    # 0x08: 64-bit code, ring 0
    .quad 0x00cf93000000ffff    # 0x10: data, ring 0
boot_gdt_pointer:
    .word . - boot_gdt - 1
    .long boot_gdt - KERNEL_BASE
no_long_mode: .asciz "shootdown: cannot boot: this CPU has no 64-bit mode; use an x86-64 CPU\r\n"
no_nx: .asciz "shootdown: cannot boot: this CPU has no no-execute pages (NX); enable it in the firmware or use another -cpu\r\n"
.popsection

.pushsection .boot.text, "ax"
.code32
# As by PVH, but EAX = a magic number, EBX = physical address of the Multiboot2 information.
multiboot_entry:
    movl %eax, multiboot_magic - KERNEL_BASE
.global pvh_entry
pvh_entry:
    cli
    cld
    rdtsc
    movl %eax, boot_tsc - KERNEL_BASE
    movl %edx, boot_tsc - KERNEL_BASE + 4
    movl %ebx, %ebp
    movl $({boot_stacks} + {main_stack_end} - KERNEL_BASE), %esp

    # CPUID 0x80000001 EDX: bit 29 long mode, bit 20 NX (SDM vol. 2A, "CPUID").
    movl $(no_long_mode - KERNEL_BASE), %esi
    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb boot_failed
    movl $0x80000001, %eax
    cpuid
    btl $29, %edx
    jnc boot_failed
    movl $(no_nx - KERNEL_BASE), %esi
    btl $20, %edx
    jnc boot_failed

    # 2048 pages of 2 MiB: the first 4 GiB, at 0, at the direct map and (1 GiB) at KERNEL_BASE.
    movl $(boot_directories - KERNEL_BASE), %edi
    movl $(PRESENT_WRITE | HUGE), %eax
    movl $2048, %ecx
2:  movl %eax, (%edi)
    addl $0x200000, %eax
    addl $8, %edi
    loop 2b

    movl $(boot_pdpt_low - KERNEL_BASE), %edi
    movl $(boot_directories - KERNEL_BASE + PRESENT_WRITE), %eax
    movl $4, %ecx
2:  movl %eax, (%edi)
    addl $0x1000, %eax
    addl $8, %edi
    loop 2b

    movl $(boot_directories - KERNEL_BASE + PRESENT_WRITE), boot_pdpt_high - KERNEL_BASE + 510 * 8
    movl $(boot_pdpt_low - KERNEL_BASE + PRESENT_WRITE), boot_pml4 - KERNEL_BASE
    movl $(boot_pdpt_low - KERNEL_BASE + PRESENT_WRITE), boot_pml4 - KERNEL_BASE + 256 * 8
    movl $(boot_pdpt_high - KERNEL_BASE + PRESENT_WRITE), boot_pml4 - KERNEL_BASE + 511 * 8

    enable_long_mode
    lgdt boot_gdt_pointer - KERNEL_BASE
    ljmp $0x08, $(low_long_mode - KERNEL_BASE)

# ESI: message. Straight to COM1; there is nothing else yet.
boot_failed:
2:  movb (%esi), %bl
    testb %bl, %bl
    jz 4f
    movw $0x3fd, %dx
3:  inb %dx, %al
    testb $0x20, %al
    jz 3b
    movw $0x3f8, %dx
    movb %bl, %al
    outb %al, %dx
    incl %esi
    jmp 2b
4:  movl ${boot_error}, %eax
    outl %eax, $0xf4
5:  hlt
    jmp 5b

.code64
low_long_mode:
    movabsq $high_half, %rax
    jmp *%rax
.popsection

.pushsection .text.boot, "ax"
.code64
high_half:
    load_segments
    leaq {boot_stacks} + {main_stack_end}(%rip), %rsp
    movl %ebp, %edi
    movl multiboot_magic(%rip), %esi
    xorl %ebp, %ebp
    call {boot_main}
    ud2

# Other CPUs arrive here from the trampoline, in 64-bit mode, on the boot page tables, without a
# stack. Each finds its number by its APIC id: from leaf 0xb where it exists, else from leaf 1. Its stack
# is where only the kernel's own page tables show it.
.global ap_high_half
ap_high_half:
    load_segments
    cpuid
    cmpl $0xb, %eax
    jb 2f
    movl $0xb, %eax
    xorl %ecx, %ecx
    cpuid
    testl %ebx, %ebx
    jnz 3f
2:  movl $1, %eax
    cpuid
    shrl $24, %ebx
    movl %ebx, %edx
3:  xorl %edi, %edi
    leaq {apic_ids}(%rip), %rsi
4:  cmpl %edx, (%rsi, %rdi, 4)
    je 5f
    incl %edi
    cmpl ${max_cpus}, %edi
    jb 4b
    # Not one of ours.
6:  hlt
    jmp 6b
5:  movq {root}(%rip), %rax
    movq %rax, %cr3
    movl %edi, %eax
    imulq ${stacks_stride}, %rax, %rax
    movabsq ${other_stacks} + {main_stack_end}, %rsp
    addq %rax, %rsp
    xorl %ebp, %ebp
    call {ap_main}
    ud2
.popsection
