/* A hart: traps, the firmware's calls, clock; how the others start; and what the engine needs of all this. */
#include "kernel.h"

#define SSIP (1UL << 1) /* of sip and sie */
#define SV39 (8UL << 60)
#define NS_PER_TICK 100 /* 10 MHz: the device tree's timebase-frequency */
/* Extensions of the SBI, and their functions. */
enum { SBI_IPI = 0x735049, SBI_HSM = 0x48534d };
enum { IPI_SEND = 0, HART_START = 0 };
#define CAUSE_SOFTWARE_INTERRUPT (1UL << 63 | 1)
#define CAUSE_LOAD_PAGE_FAULT 13UL

static size_t hart_ids[MAX_CPUS];

/* 0, or why it was refused. All registers but a0 and a1 are preserved (SBI, "Binary Encoding"). */
static long sbi(size_t extension, size_t function, size_t first, size_t second, size_t third)
{
    register size_t a0 __asm__("a0") = first, a1 __asm__("a1") = second, a2 __asm__("a2") = third;
    register size_t a6 __asm__("a6") = function, a7 __asm__("a7") = extension;
    __asm__ volatile("ecall" : "+r"(a0), "+r"(a1) : "r"(a2), "r"(a6), "r"(a7) : "memory");
    return (long)a0;
}

/* Accesses of control registers and calls of the firmware are ordered like those of devices. */
static void fence(void)
{
    __asm__ volatile("fence iorw, iorw" : : : "memory");
}

uint32_t cpu_number(void *user)
{
    size_t number;
    __asm__ volatile("mv %0, tp" : "=r"(number));
    return (uint32_t)number;
}

size_t irqs_off(void *user)
{
    size_t flags;
    __asm__ volatile("csrrci %0, sstatus, 2" : "=r"(flags) : : "memory");
    return flags;
}

void irqs_restore(void *user, size_t flags)
{
    if ((flags & INTERRUPTS_ON) != 0)
        __asm__ volatile("csrsi sstatus, 2" : : : "memory");
}

/* Called by boot.S; returns where to go on. */
uintptr_t trap(size_t cause, uintptr_t at)
{
    extern const char probe_fault[];
    if (cause == CAUSE_SOFTWARE_INTERRUPT) {
        /* There is one bit for all who send: cleared first, or the interrupt of one who sends meanwhile is lost. */
        __asm__ volatile("csrc sip, %0" : : "r"(SSIP) : "memory");
        fence();
        shootdown_handle_ipi(&engine);
    } else if (cause == CAUSE_LOAD_PAGE_FAULT && at == (uintptr_t)probe) {
        return (uintptr_t)probe_fault;
    } else {
        print("c-kernel: trap %x at %x\n", cause, at);
        end(false, "an exception");
    }
    return at;
}

/* Translation, traps, interrupts. On each CPU, the first one first, with interrupts off. */
void cpu_start(uint32_t cpu)
{
    extern const char trap_entry[];
    __asm__ volatile("csrw stvec, %0" : : "r"(trap_entry) : "memory");
    __asm__ volatile("csrr %0, sscratch" : "=r"(hart_ids[cpu]));
    load_root(NULL, kernel_root);
    __asm__ volatile("csrw sie, %0" : : "r"(SSIP) : "memory");
}

void start_clock(void)
{
}

uint64_t now_ns(void *user)
{
    uint64_t ticks;
    __asm__ volatile("rdtime %0" : "=r"(ticks));
    return ticks * NS_PER_TICK;
}

/* The board's harts have the numbers from 0 on; any of them may have booted. */
void start_others(void)
{
    extern const char start[];
    for (size_t hart = 0; hart < cpu_count; hart++)
        if (hart != hart_ids[0] && sbi(SBI_HSM, HART_START, hart, (uintptr_t)start, 0) != 0)
            end(false, "the firmware does not start a hart");
}

int send_ipi(void *user, uint32_t target)
{
    fence();
    return sbi(SBI_IPI, IPI_SEND, 1, hart_ids[target], 0) != 0;
}

void flush_all(void *user)
{
    __asm__ volatile("sfence.vma" : : : "memory");
}

/* With an address the fence drops leaves only, not what leads to a table that is freed. Each page, whatever its size, has one leaf: no Svnapot here. */
void flush_pages(void *user, size_t start, size_t count, uint32_t page_shift, uint32_t freed)
{
    if (freed)
        flush_all(user);
    else
        for (size_t page = 0; page < count; page++)
            __asm__ volatile("sfence.vma %0, zero" : : "r"(start + (page << page_shift)) : "memory");
}

/* There is one tag: satp neither drops nor orders anything. The fence before: stores to the tables come before walks. That behind: nothing is left of the
   root before (Privileged Architecture, "Supervisor Memory-Management Fence Instruction"). */
void load_root(void *user, uint64_t root)
{
    __asm__ volatile("sfence.vma; csrw satp, %0; sfence.vma" : : "r"(SV39 | root >> 12) : "memory");
}
