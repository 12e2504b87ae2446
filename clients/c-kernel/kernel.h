/* A kernel whose only purpose is to use the engine from C: what its files offer to each other. */
#define MAX_CPUS 16
#define STACK_BYTES 16384
#define PROBE_FAULT -1 /* what `probe` answers where nothing is mapped */
#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch.h"
#include "shootdown.h"

extern shootdown_engine_t engine;

/* console.c */
extern uint32_t cpu_count, seconds;
extern bool is_broken, is_deaf; /* break=no-flush: nothing is flushed; break=no-poll: who spins for a lock does not poll */
void print(const char *format, ...); /* %s is a text; %u and %x are numbers of 64 bits */
_Noreturn void end(bool is_good, const char *why);
void check(shootdown_status_t status, const char *what);
void read_options(void);

/* platform.c */
extern const shootdown_platform_t platform;

/* The processor's cpu.c */
uint32_t cpu_number(void *user);
uint64_t now_ns(void *user);
size_t irqs_off(void *user);
void irqs_restore(void *user, size_t flags);
void cpu_start(uint32_t cpu);
void start_clock(void);
void start_others(void);
int send_ipi(void *user, uint32_t target);
void flush_all(void *user);
void flush_pages(void *user, size_t start, size_t count, uint32_t page_shift, uint32_t freed);
void load_root(void *user, uint64_t root);

/* A lock that is taken with interrupts off: who waits for it polls. */
static inline size_t lock(uint32_t *word)
{
    size_t flags = irqs_off(NULL);
    while (__atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE) != 0) {
        if (!is_deaf)
            shootdown_poll(&engine);
        pause();
    }
    return flags;
}

static inline void unlock(uint32_t *word, size_t flags)
{
    __atomic_store_n(word, 0, __ATOMIC_RELEASE);
    irqs_restore(NULL, flags);
}

/* The processor's boot.S */
uint64_t probe(uintptr_t address);

/* memory.c */
#define PAGES 24
#define USER_PAGES 16 /* those from here on are the kernel's */
extern shootdown_space_t space;
extern uint64_t kernel_root;
void memory_start(void);
bool page_check(uint32_t page, bool *was_mapped);
bool page_replace(uint32_t page, uint64_t how);
bool table_replace(void);

/* calls.c */
void calls_start(void);
void call_others(uint32_t cpu, uint64_t random);
void post_to_others(uint32_t cpu, uint64_t random);
void calls_count(uint64_t *ran, uint64_t *due);
#endif
