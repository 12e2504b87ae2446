/* A CPU: descriptors, traps, local APIC (xAPIC), clock; how the others start; and what the engine needs of all this. */
#include "kernel.h"

#define APIC 0xfee00000UL
#define ICR_TO_OTHERS 0xc4000u
#define START_PAGE 0x8000UL
enum { APIC_ID = 0x20, APIC_EOI = 0xb0, APIC_SPURIOUS = 0xf0, APIC_ICR = 0x300, APIC_ICR_TARGET = 0x310 };
enum { VECTOR_PAGE_FAULT = 14, VECTOR_IPI = 0x28, VECTOR_SPURIOUS = 0x2f };

static struct {
    uint16_t low, selector, attributes, middle;
    uint32_t high, reserved;
} idt[48];
static struct {
    uint32_t number; /* GS leads here */
    uint32_t apic_id;
} cpus[MAX_CPUS];
static uint64_t ticks_per_ms;

static volatile uint32_t *apic(uint32_t offset)
{
    return (volatile uint32_t *)(APIC + offset);
}

uint32_t cpu_number(void *user)
{
    uint32_t number;
    __asm__ volatile("movl %%gs:0, %0" : "=r"(number));
    return number;
}

size_t irqs_off(void *user)
{
    size_t flags;
    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags) : : "memory");
    return flags;
}

void irqs_restore(void *user, size_t flags)
{
    if ((flags & INTERRUPTS_ON) != 0)
        __asm__ volatile("sti" : : : "memory");
}

/* Called by boot.S with what it has pushed. */
void trap(uint64_t *frame)
{
    extern const char probe_fault[];
    uint64_t vector = frame[9], *rip = &frame[11];
    if (vector == VECTOR_IPI) {
        *apic(APIC_EOI) = 0;
        shootdown_handle_ipi(&engine);
    } else if (vector == VECTOR_PAGE_FAULT && *rip == (uintptr_t)probe) {
        *rip = (uintptr_t)probe_fault;
    } else if (vector != VECTOR_SPURIOUS) {
        print("c-kernel: exception %u, code %x, at %x\n", vector, frame[10], *rip);
        end(false, "an exception");
    }
}

static void make_idt(void)
{
    extern const char vectors[];
    for (uint32_t vector = 0; vector < sizeof idt / sizeof idt[0]; vector++) {
        uintptr_t entry = (uintptr_t)vectors + vector * 16;
        idt[vector].low = (uint16_t)entry;
        idt[vector].middle = (uint16_t)(entry >> 16);
        idt[vector].selector = 8;
        idt[vector].attributes = 0x8e00;
    }
    out8(0x21, 0xff); /* the old interrupt controllers are silent */
    out8(0xa1, 0xff);
}

/* Number, traps, controller. On each CPU, the first one first, with interrupts off. */
void cpu_start(uint32_t cpu)
{
    struct {
        uint16_t limit;
        uint64_t base;
    } __attribute__((packed)) pointer = {sizeof idt - 1, (uintptr_t)idt};
    uintptr_t own = (uintptr_t)&cpus[cpu];
    if (cpu == 0)
        make_idt();
    __asm__ volatile("lidt %0" : : "m"(pointer));
    cpus[cpu].number = cpu;
    cpus[cpu].apic_id = *apic(APIC_ID) >> 24;
    __asm__ volatile("wrmsr" : : "c"(0xc0000101 /* GS base */), "a"((uint32_t)own), "d"((uint32_t)(own >> 32)) : "memory");
    *apic(APIC_SPURIOUS) = 1 << 8 | VECTOR_SPURIOUS;
}

static uint64_t ticks(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

/* Counts the TSC's ticks while the PIT's second channel counts 50 ms (1193182 Hz). */
void start_clock(void)
{
    uint32_t count = 1193182 / 20;
    out8(0x61, (in8(0x61) & 0xfd) | 1);
    out8(0x43, 0xb0);
    out8(0x42, (uint8_t)count);
    out8(0x42, (uint8_t)(count >> 8));
    uint64_t begin = ticks();
    while ((in8(0x61) & 0x20) == 0)
        pause();
    ticks_per_ms = (ticks() - begin) / 50 + 1;
}

uint64_t now_ns(void *user)
{
    uint64_t now = ticks();
    return now / ticks_per_ms * 1000000 + now % ticks_per_ms * 1000000 / ticks_per_ms;
}

static void command_others(uint32_t command, uint64_t delay_ns)
{
    *apic(APIC_ICR) = ICR_TO_OTHERS | command;
    for (uint64_t begin = now_ns(NULL); now_ns(NULL) - begin < delay_ns;)
        pause();
}

/* INIT, start-up IPI, and a second one for those that slept through the first (SDM vol. 3A, "Typical BSP Initialization Sequence"). */
void start_others(void)
{
    extern const char start_of_others[], end_of_others[];
    for (long i = 0; i < end_of_others - start_of_others; i++)
        ((volatile char *)START_PAGE)[i] = start_of_others[i];
    command_others(0x500, 10000000);
    command_others(0x600 | START_PAGE >> 12, 200000);
    command_others(0x600 | START_PAGE >> 12, 0);
}

/* Refused while the one before is on its way. The store to the uncached page is ordered after all that was written before it. */
int send_ipi(void *user, uint32_t target)
{
    if ((*apic(APIC_ICR) & 1 << 12) != 0)
        return 1;
    *apic(APIC_ICR_TARGET) = cpus[target].apic_id << 24;
    *apic(APIC_ICR) = 1 << 14 | VECTOR_IPI;
    return 0;
}

/* No page is global, so this is everything. */
void flush_all(void *user)
{
    uint64_t root;
    __asm__ volatile("movq %%cr3, %0; movq %0, %%cr3" : "=r"(root) : : "memory");
}

/* INVLPG leaves cached page-table entries that do not lead to its address, where EFER.TCE is set (AMD). */
void flush_pages(void *user, size_t start, size_t count, uint32_t page_shift, uint32_t freed)
{
    for (size_t page = 0; page < count; page++)
        __asm__ volatile("invlpg (%0)" : : "r"(start + (page << page_shift)) : "memory");
    if (freed)
        flush_all(user);
}

void load_root(void *user, uint64_t root)
{
    __asm__ volatile("movq %0, %%cr3" : : "r"(root) : "memory");
}
