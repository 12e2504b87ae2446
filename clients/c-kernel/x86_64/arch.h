/* x86-64, a PC under QEMU: page tables, ports, and what takes a line. */
#define LEVELS 4
#define INTERRUPTS_ON (1 << 9) /* RFLAGS.IF */
#define COM1 0x3f8
#define DEBUG_EXIT 0xf4

/* Present, writable. */
static inline uint64_t table_entry(const void *table)
{
    return (uintptr_t)table | 3;
}

static inline uint64_t leaf_entry(const void *frame)
{
    return (uintptr_t)frame | 3;
}

static inline void out8(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t in8(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline void pause(void)
{
    __asm__ volatile("pause" : : : "memory");
}

static inline void put(char c)
{
    while ((in8(COM1 + 5) & 0x20) == 0)
        pause();
    out8(COM1, (uint8_t)c);
}

/* QEMU ends with 2v + 1. */
static inline void end_machine(uint32_t code)
{
    out8(DEBUG_EXIT, (uint8_t)(code / 2));
}

/* The start info has its address at offset 24 ("x86/HVM direct boot ABI"). */
static inline const char *command_line(void)
{
    extern uint32_t start_info;
    return (const char *)*(uint64_t *)(uintptr_t)(start_info + 24);
}
