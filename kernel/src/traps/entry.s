# Every way into the kernel after boot, and every way out to ring 3.
#
# GS rules: in ring 3 the GS base is the user's; in the kernel it is this CPU's `PerCpu`. Entries
# that cannot interrupt the kernel between its first instruction and SWAPGS decide by the saved CS.
# NMI, #DF and #MC can, so they look at the GS base itself: the kernel's is in the upper half, and
# user programs cannot put such a value there (FSGSBASE is off).
#
# With isolation (`arch/isolation.rs`) in ring 3 CR3 has the user root, which maps this section and little else. Entries from there load the kernel's first of all, exits the
# user's last; NMI, #DF and #MC look at CR3 itself, and put back what they found. RSP is the register that is free for it: SYSCALL has not begun its
# stack yet, SYSRET and IRET are done with it.
#
# SMAP: a user may enter with RFLAGS.AC set, which would switch SMAP off in the kernel. The sites
# marked with CLAC are patched at boot where the CPU has SMAP (see `arch/smap.rs`).

.macro CLAC
771: .byte 0x0f, 0x1f, 0x00
.pushsection .smap_sites, "a"
.quad 771b, {clac}
.popsection
.endm

# In the order of `TrapFrame`, from its end.
.macro PUSH_REGISTERS
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rbx
    pushq %rbp
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
.endm

.macro POP_REGISTERS
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rbp
    popq %rbx
    popq %rdx
    popq %rcx
    popq %rax
.endm

.pushsection .entry.text, "ax"
.if {isolation}
.balign 4096
.global entry_text_start
entry_text_start:
.endif

# 256 stubs of 16 bytes: make the error code uniform, name the vector.
.balign 16
.global trap_stubs
trap_stubs:
.set vector, 0
.rept 256
    .balign 16
    .if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30
    .else
    pushq $0
    .endif
    pushq $vector
    .if vector == 2 || vector == 8 || vector == 18
    jmp trap_paranoid
    .else
    jmp trap_common
    .endif
    .set vector, vector + 1
.endr

.balign 16
trap_common:
    cld
    CLAC
.if {isolation}
    # Above the stack pointer: vector, error code, RIP, CS, RFLAGS, RSP, SS.
    testb $3, 24(%rsp)
    jnz trap_from_user
    PUSH_REGISTERS
call_trap:
.else
    PUSH_REGISTERS
    testb $3, {cs}(%rsp)
    jz 2f
    swapgs
    xorl %ebp, %ebp
.endif
2:  movq %rsp, %rdi
    call {trap}
    testb $3, {cs}(%rsp)
    jnz return_to_user
    POP_REGISTERS
    addq $16, %rsp
    iretq

.balign 16
trap_paranoid:
    cld
    CLAC
    PUSH_REGISTERS
    movl $0xc0000101, %ecx
    rdmsr
    xorl %ebx, %ebx
    testl %edx, %edx
    js 2f
    swapgs
    incl %ebx
2:
.if {isolation}
    xorl %r12d, %r12d
    movq %gs:{user_cr3}, %rax
    btrq $63, %rax
    movq %cr3, %rcx
    cmpq %rax, %rcx
    jne 4f
    movq %gs:{kernel_cr3}, %rax
    movq %rax, %cr3
    incl %r12d
4:
.endif
    movq %rsp, %rdi
    call {trap_paranoid}
.if {isolation}
    testl %r12d, %r12d
    jz 5f
    movq %gs:{user_cr3}, %rax
    movq %rax, %cr3
5:
.endif
    testl %ebx, %ebx
    jz 3f
    swapgs
3:  POP_REGISTERS
    addq $16, %rsp
    iretq

# RCX = return address, R11 = flags, RSP = the user's; interrupts off by SFMASK.
.balign 16
.global syscall_entry
syscall_entry:
    swapgs
    movq %rsp, %gs:{user_rsp}
.if {isolation}
    movq %gs:{kernel_cr3}, %rsp
    movq %rsp, %cr3
.endif
    movq %gs:{kernel_stack}, %rsp
    pushq ${user_ss}
    pushq %gs:{user_rsp}
    pushq %r11
    pushq ${user_cs}
    pushq %rcx
    pushq %rax
    pushq ${syscall_vector}
    PUSH_REGISTERS
    xorl %ebp, %ebp
    movq %rsp, %rdi
    call {syscall}
    testb %al, %al
    jz return_to_user
    # The frame is as SYSCALL left it: SYSRET does, and is faster.
    POP_REGISTERS
    addq $16, %rsp
    popq %rcx
    addq $8, %rsp
    popq %r11
.if {isolation}
    popq %gs:{user_rsp}
    movq %gs:{user_cr3}, %rsp
    movq %rsp, %cr3
    movq %gs:{user_rsp}, %rsp
.else
    popq %rsp
.endif
    swapgs
    sysretq

# RDI: a `TrapFrame` that leads to ring 3. Interrupts off.
.global enter_user_frame
enter_user_frame:
    movq %rdi, %rsp
return_to_user:
.if {isolation}
    POP_REGISTERS
    addq $16, %rsp
    # Only the entry stack is there under both roots.
    popq %gs:{iret_frame}
    popq %gs:{iret_frame} + 8
    popq %gs:{iret_frame} + 16
    popq %gs:{iret_frame} + 24
    popq %gs:{iret_frame} + 32
    movq %gs:{user_cr3}, %rsp
    movq %rsp, %cr3
    movq %gs:{iret_frame_at}, %rsp
    swapgs
    iretq

# On the entry stack, as `trap_common` found it.
.balign 16
trap_from_user:
    swapgs
    pushq %rax
    movq %gs:{kernel_cr3}, %rax
    movq %rax, %cr3
    movq %rsp, %rax
    movq %gs:{kernel_stack}, %rsp
    pushq 56(%rax)
    pushq 48(%rax)
    pushq 40(%rax)
    pushq 32(%rax)
    pushq 24(%rax)
    pushq 16(%rax)
    pushq 8(%rax)
    movq (%rax), %rax
    PUSH_REGISTERS
    xorl %ebp, %ebp
    jmp call_trap
.balign 4096
.global entry_text_end
entry_text_end:
.else
    swapgs
    POP_REGISTERS
    addq $16, %rsp
    iretq
.endif
.popsection
