/* Calls of every kind. Each target counts what runs there, each caller what should: at the end the sums are the same. */
#include "kernel.h"

#define NODES 4

static struct __attribute__((aligned(128))) {
    uint64_t ran, due;
    shootdown_node_t nodes[NODES];
} counts[MAX_CPUS];

/* Also reads a page of the kernel, which a called function may, and tries to call, which it may not. */
static void hit(void *data, uint32_t cpu)
{
    bool was_mapped;
    if (data != &counts || cpu != cpu_number(NULL))
        end(false, "a function was called with wrong data or on the wrong CPU");
    if (!page_check(PAGES - 1, &was_mapped) && !is_broken)
        end(false, "a called function has read a stale page");
    if (shootdown_call_all(&engine, hit, data, NULL) != SHOOTDOWN_IN_FUNCTION)
        end(false, "a called function may call");
    counts[cpu].ran++;
}

void calls_start(void)
{
    for (uint32_t cpu = 0; cpu < cpu_count; cpu++)
        for (uint32_t node = 0; node < NODES; node++)
            check(shootdown_node_init(&engine, &counts[cpu].nodes[node], hit, &counts), "shootdown_node_init");
}

/* Notes that these CPUs have been sent a function; others that were named were not online, or nothing was sent. */
static void check_sent(uint32_t cpu, const shootdown_cpus_t *sent, shootdown_status_t status)
{
    for (uint64_t word = sent->words[0]; word != 0; word &= word - 1)
        counts[cpu].due += status == SHOOTDOWN_OK;
    if (status != SHOOTDOWN_BUSY && status != SHOOTDOWN_NOT_ONLINE)
        check(status, "a call or a post");
}

/* Calls one, some or all CPUs, this one too, and waits; at once, or by a ticket (two that never go offline at that time). */
void call_others(uint32_t cpu, uint64_t random)
{
    shootdown_cpus_t some = {{random >> 8}}, one = {{1}}, two = {{1 | 1UL << cpu}}, ran = {{0}};
    shootdown_ticket_t ticket = SHOOTDOWN_TICKET_INIT;
    uint32_t target = (uint32_t)(random >> 40) % cpu_count;
    switch (random % 4) {
    case 0:
        check_sent(cpu, &one, shootdown_call_one(&engine, target, hit, &counts));
        break;
    case 1:
        check_sent(cpu, &ran, shootdown_call_many(&engine, &some, hit, &counts, &ran));
        break;
    case 2:
        check(shootdown_submit_call(&engine, &two, hit, &counts, &ticket), "shootdown_submit_call");
        check_sent(cpu, &two, shootdown_ticket_wait(&ticket));
        break;
    default:
        check_sent(cpu, &ran, shootdown_call_all(&engine, hit, &counts, &ran));
    }
}

/* The same without waiting: through the engine's slots, or by a node. */
void post_to_others(uint32_t cpu, uint64_t random)
{
    shootdown_cpus_t some = {{random >> 8}}, one = {{1}}, sent = {{0}};
    uint32_t target = (uint32_t)(random >> 40) % cpu_count;
    shootdown_node_t *node = &counts[cpu].nodes[random / 2 % NODES];
    if (random % 2 == 0)
        check_sent(cpu, &sent, shootdown_post(&engine, &some, hit, &counts, &sent));
    else
        check_sent(cpu, &one, shootdown_post_node(&engine, target, node));
}

void calls_count(uint64_t *ran, uint64_t *due)
{
    *ran = *due = 0;
    for (uint32_t cpu = 0; cpu < cpu_count; cpu++) {
        *ran += __atomic_load_n(&counts[cpu].ran, __ATOMIC_RELAXED);
        *due += counts[cpu].due;
    }
}
