/*
 * Pages that all CPUs read while each of them is unmapped, or mapped to another frame, again and again.
 *
 * The first word of a frame is a stamp: which page it was given to, and as which version. When the flush of a page has finished, its old
 * frame is stamped as nobody's, and given to the next page that needs one. So a CPU that still uses the old translation reads a stamp that
 * is nobody's, another page's, or older than the least version of the page that it may still see.
 */
#include "kernel.h"

#define FRAMES (PAGES + 2 * MAX_CPUS)
#define BETWEEN (LEVELS - 2) /* tables between the root and a leaf table */
#define SLOT_BYTES (1UL << (12 + 9 * (LEVELS - 1)))
#define USER_SLOT 1UL   /* of the top-level table: only the space has it */
#define KERNEL_SLOT 3UL /* every root has it, and what boot_root has */
#define NOBODY 0xffUL

typedef struct __attribute__((aligned(4096))) {
    volatile uint64_t word[512];
} page_t;

extern page_t boot_root;
static page_t root, user_tables[BETWEEN], kernel_tables[BETWEEN], nobodys, frames[FRAMES];
static page_t user_leaves[2], kernel_leaf; /* one of the first two is in use, the other one takes its place */
static page_t *free_frames[FRAMES];
static uint32_t free_count, leaf_in_use, tables_lock, is_leaf_changing;
static struct {
    page_t *frame;
    uint64_t version, least; /* of the frame; that a reader may see */
    bool is_changing;
} pages[PAGES];

shootdown_space_t space;
uint64_t kernel_root = (uintptr_t)&boot_root;

static uintptr_t address_of(uint32_t page)
{
    return (page < USER_PAGES ? USER_SLOT : KERNEL_SLOT) * SLOT_BYTES + page * sizeof(page_t);
}

static volatile uint64_t *entry_of(uint32_t page)
{
    return page < USER_PAGES ? &user_leaves[leaf_in_use].word[page] : &kernel_leaf.word[page];
}

/* Maps the next version of a page. Under the lock, like all that uses the tables. */
static void map_next(uint32_t page)
{
    pages[page].frame = free_frames[--free_count];
    pages[page].frame->word[0] = ++pages[page].version << 8 | page;
    *entry_of(page) = leaf_entry(pages[page].frame);
}

/* The entry of a root that leads to a leaf table by these. */
static uint64_t link_tables(page_t *tables, const page_t *leaf)
{
    for (uint32_t i = 0; i < BETWEEN; i++)
        tables[i].word[0] = table_entry(i + 1 < BETWEEN ? &tables[i + 1] : leaf);
    return table_entry(tables);
}

void memory_start(void)
{
    boot_root.word[KERNEL_SLOT] = link_tables(kernel_tables, &kernel_leaf);
    for (uint32_t slot = 0; slot < 512; slot++)
        root.word[slot] = boot_root.word[slot];
    root.word[USER_SLOT] = link_tables(user_tables, &user_leaves[0]);
    nobodys.word[0] = NOBODY;
    for (; free_count < FRAMES; free_count++)
        free_frames[free_count] = &frames[free_count];
    for (uint32_t page = 0; page < PAGES; page++)
        map_next(page);
    check(shootdown_space_init(&engine, &space, (uintptr_t)&root), "shootdown_space_init");
}

/* Reads a page; false if that is what no CPU may read any more. */
bool page_check(uint32_t page, bool *was_mapped)
{
    uint64_t least = __atomic_load_n(&pages[page].least, __ATOMIC_ACQUIRE);
    uint64_t stamp = probe(address_of(page));
    *was_mapped = stamp != (uint64_t)PROBE_FAULT;
    return !*was_mapped || ((stamp & NOBODY) == page && stamp >> 8 >= least);
}

/* Entries for a page of 2^shift bytes at this address have changed. Under the lock. */
static void submit(bool is_users, uintptr_t address, size_t count, uint32_t flags, shootdown_ticket_t *ticket)
{
    shootdown_range_t range = {address, count, 12};
    if (is_broken)
        return;
    check(is_users ? shootdown_submit_flush(&engine, &space, &range, 1, flags, ticket)
                   : shootdown_submit_flush_kernel(&engine, &range, 1, flags, ticket),
          "the submission of a flush");
}

/* Unmaps a page, or (bit 0) maps it elsewhere at once, and flushes; waits (bit 1) under the lock, or after it. False if another CPU does. */
bool page_replace(uint32_t page, uint64_t how)
{
    bool at_once = how & 1;
    shootdown_ticket_t ticket = SHOOTDOWN_TICKET_INIT;
    size_t flags = lock(&tables_lock);
    if (pages[page].is_changing) {
        unlock(&tables_lock, flags);
        return false;
    }
    pages[page].is_changing = true;
    page_t *old = pages[page].frame;
    if (at_once)
        map_next(page);
    else
        *entry_of(page) = 0;
    submit(page < USER_PAGES, address_of(page), 1, 0, &ticket);
    if (how & 2)
        check(shootdown_ticket_drop(&ticket), "a wait under the lock");
    unlock(&tables_lock, flags);
    check(shootdown_ticket_drop(&ticket), "shootdown_ticket_drop");
    /* From here on nobody reads the old frame. */
    old->word[0] = NOBODY;
    flags = lock(&tables_lock);
    if (!at_once)
        map_next(page);
    __atomic_store_n(&pages[page].least, pages[page].version, __ATOMIC_RELEASE);
    free_frames[free_count++] = old;
    pages[page].is_changing = false;
    unlock(&tables_lock, flags);
    return true;
}

/* Puts another leaf table into the place of that of all user pages, and gives the old one new contents; false if another CPU does. */
bool table_replace(void)
{
    shootdown_ticket_t ticket = SHOOTDOWN_TICKET_INIT;
    if (__atomic_exchange_n(&is_leaf_changing, 1, __ATOMIC_ACQUIRE))
        return false;
    size_t flags = lock(&tables_lock);
    page_t *old = &user_leaves[leaf_in_use], *new = &user_leaves[leaf_in_use ^= 1];
    for (uint32_t page = 0; page < USER_PAGES; page++)
        new->word[page] = old->word[page];
    user_tables[BETWEEN - 1].word[0] = table_entry(new);
    submit(true, USER_SLOT * SLOT_BYTES, 512, SHOOTDOWN_FREED_TABLES, &ticket);
    unlock(&tables_lock, flags);
    check(shootdown_ticket_drop(&ticket), "shootdown_ticket_drop");
    /* From here on nobody walks the old table. */
    for (uint32_t page = 0; page < USER_PAGES; page++)
        old->word[page] = leaf_entry(&nobodys);
    __atomic_store_n(&is_leaf_changing, 0, __ATOMIC_RELEASE);
    return true;
}
