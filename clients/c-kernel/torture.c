/* The order of the boot, and what each CPU does until the time is over: reads, and all that the engine offers, at random. */
#include "kernel.h"

#define READS 8

enum { READ, FAULT, STALE, REPLACED, TABLES, SWITCHES, OFFLINES, COUNTS };

shootdown_engine_t engine;
static shootdown_memory_t memory[MAX_CPUS];
static uint32_t online, finished;
static struct __attribute__((aligned(128))) {
    uint64_t random, counts[COUNTS];
} own[MAX_CPUS];

static uint64_t next_random(uint32_t cpu)
{
    uint64_t x = own[cpu].random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return own[cpu].random = x;
}

/* Reads that many pages, from number `first` on. */
static void read_pages(uint32_t cpu, uint32_t count, uint32_t first)
{
    uint64_t *counts = own[cpu].counts;
    for (; count > 0; count--) {
        bool was_mapped;
        uint32_t page = first + (uint32_t)(next_random(cpu) >> 8) % (PAGES - first);
        if (!page_check(page, &was_mapped) && counts[STALE]++ == 0)
            print("c-kernel: cpu%u has read page %u through a stale translation\n", (uint64_t)cpu, (uint64_t)page);
        counts[READ]++;
        counts[FAULT] += !was_mapped;
    }
}

/* Without the space for a while: lazily, or out of it, or not even online. */
static void leave_space(uint32_t cpu, uint64_t random)
{
    if (random % 2 == 0) {
        check(shootdown_enter_lazy(&engine, kernel_root), "shootdown_enter_lazy");
        read_pages(cpu, 8 * READS, USER_PAGES);
    } else {
        check(shootdown_switch_away(&engine, kernel_root), "shootdown_switch_away");
        read_pages(cpu, READS, USER_PAGES);
        if (cpu != 0 && random / 2 % 8 == 0) {
            size_t flags = irqs_off(NULL);
            check(shootdown_offline(&engine), "shootdown_offline");
            check(shootdown_online(&engine), "shootdown_online");
            irqs_restore(NULL, flags);
            own[cpu].counts[OFFLINES]++;
        }
    }
    check(shootdown_switch_to(&engine, &space), "shootdown_switch_to");
    own[cpu].counts[SWITCHES]++;
}

/* CPU 0 changes the policy; the others have all pass through the engine. */
static void stir(uint32_t cpu, uint64_t random)
{
    static const char *const policies[] = {"before", "published", "best", "best+defer"};
    shootdown_ticket_t ticket = SHOOTDOWN_TICKET_INIT;
    if (cpu == 0) {
        check(shootdown_set_policy(&engine, policies[random % 4]), "shootdown_set_policy");
        return;
    }
    check(shootdown_kick(&engine, NULL, &ticket), "shootdown_kick");
    check(shootdown_ticket_wait(&ticket), "shootdown_ticket_wait");
}

static void step(uint32_t cpu)
{
    uint64_t random = next_random(cpu), choice = random % 64;
    random /= 64;
    if (choice < 40)
        read_pages(cpu, READS, 0);
    else if (choice < 52)
        own[cpu].counts[REPLACED] += page_replace((uint32_t)(random >> 8) % PAGES, random);
    else if (choice < 54)
        own[cpu].counts[TABLES] += table_replace();
    else if (choice < 58)
        call_others(cpu, random);
    else if (choice < 61)
        post_to_others(cpu, random);
    else if (choice < 63)
        leave_space(cpu, random);
    else
        stir(cpu, random);
}

/* CPU 0: waits for the others, and for what was posted; then says what was found. */
static _Noreturn void conclude(void)
{
    char name[64];
    uint64_t value, ran, due, sums[COUNTS] = {0}, begin = now_ns(NULL), patience = 20000000000;
    while (__atomic_load_n(&finished, __ATOMIC_ACQUIRE) < cpu_count)
        if (now_ns(NULL) - begin > patience)
            end(false, "a CPU does not come to its end");
    do
        calls_count(&ran, &due);
    while (ran != due && now_ns(NULL) - begin < patience);
    for (uint32_t cpu = 0; cpu < cpu_count; cpu++)
        for (uint32_t i = 0; i < COUNTS; i++)
            sums[i] += own[cpu].counts[i];
    check(shootdown_space_deinit(&engine, &space), "shootdown_space_deinit");
    for (size_t i = 0; shootdown_stat_name(i, name, sizeof name) == SHOOTDOWN_OK; i++) {
        check(shootdown_stat(&engine, SHOOTDOWN_ALL_CPUS, name, &value), name);
        if (value != 0)
            print("%s=%u ", name, value);
    }
    print("\nc-kernel: cpus=%u seconds=%u reads=%u faults=%u replaced=%u tables=%u switches=%u offlines=%u calls=%u ",
          (uint64_t)cpu_count, (uint64_t)seconds, sums[READ], sums[FAULT], sums[REPLACED], sums[TABLES], sums[SWITCHES],
          sums[OFFLINES], due);
    print("lost=%u stale=%u\n", due - ran, sums[STALE]);
    bool is_good = sums[STALE] == 0 && ran == due;
    end(is_good, is_good ? "ok" : "FAILED");
}

/* Interrupts are off, and this CPU is a target: it polls. */
static void await(const uint32_t *word, uint32_t wanted)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < wanted) {
        shootdown_poll(&engine);
        pause();
    }
}

static void start_machine(void)
{
    start_clock();
    check(shootdown_init(&engine, sizeof engine, &platform), "shootdown_init");
    for (uint32_t cpu = 0; cpu < cpu_count; cpu++)
        check(shootdown_attach(&engine, cpu, &memory[cpu]), "shootdown_attach");
    memory_start();
    calls_start();
}

/* Called by boot.S on the stack of each CPU; the boot CPU is the first. */
_Noreturn void cpu_main(uint32_t cpu)
{
    if (cpu == 0)
        read_options();
    if (cpu >= cpu_count)
        end(false, "there are more CPUs than cpus= says");
    cpu_start(cpu);
    if (cpu == 0)
        start_machine();
    check(shootdown_online(&engine), "shootdown_online");
    if (__atomic_add_fetch(&online, 1, __ATOMIC_ACQ_REL) < cpu_count && cpu == 0)
        start_others();
    await(&online, cpu_count);
    irqs_restore(NULL, INTERRUPTS_ON);
    own[cpu].random = 0x9e3779b97f4a7c15 * (cpu + 1);
    check(shootdown_switch_to(&engine, &space), "shootdown_switch_to");
    for (uint64_t begin = now_ns(NULL); now_ns(NULL) - begin < seconds * 1000000000UL;)
        step(cpu);
    check(shootdown_switch_away(&engine, kernel_root), "shootdown_switch_away");
    __atomic_add_fetch(&finished, 1, __ATOMIC_ACQ_REL);
    if (cpu == 0)
        conclude();
    for (;;)
        pause();
}
