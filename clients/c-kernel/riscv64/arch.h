/* RV64 in supervisor mode, QEMU's board "virt" (hw/riscv/virt.c): page tables, devices, and what takes a line. */
#define LEVELS 3                                   /* Sv39 */
#define INTERRUPTS_ON (1 << 1)                     /* sstatus.SIE */
#define SERIAL ((volatile uint8_t *)0x10000000)    /* an NS16550A */
#define TEST_DEVICE ((volatile uint32_t *)0x100000) /* sifive_test: ends QEMU */
#define OPTIONS ((const char *)0x86000000)         /* client.toml has QEMU load them there */

/* Privileged Architecture, "Sv39": V; of a leaf also R, W, A, D: no walk writes. No entry has G. */
static inline uint64_t table_entry(const void *table)
{
    return (uintptr_t)table >> 12 << 10 | 0x01;
}

static inline uint64_t leaf_entry(const void *frame)
{
    return (uintptr_t)frame >> 12 << 10 | 0xc7;
}

/* PAUSE, by number ("Zihintpause"): elsewhere a fence of nothing. */
static inline void pause(void)
{
    __asm__ volatile(".4byte 0x0100000f" : : : "memory");
}

static inline void put(char c)
{
    while ((SERIAL[5] & 0x20) == 0)
        pause();
    SERIAL[0] = (uint8_t)c;
}

static inline void end_machine(uint32_t code)
{
    *TEST_DEVICE = code << 16 | 0x3333;
}

static inline const char *command_line(void)
{
    return OPTIONS;
}
