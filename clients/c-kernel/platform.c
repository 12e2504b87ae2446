/* What the engine is given: the functions of x86_64/cpu.c or riscv64/cpu.c, and where it complains. */
#include "kernel.h"

/* A wait has taken ten seconds. */
static void on_stall(void *user, const shootdown_stall_t *stall)
{
    end(false, stall->text);
}

/* The library has found a broken duty. */
void shootdown_panic(const char *text)
{
    end(false, text);
}

/* No page is global, so flush_space and flush_all are the same. */
const shootdown_platform_t platform = {
    .current_cpu = cpu_number, .irq_save = irqs_off,       .irq_restore = irqs_restore,
    .send_ipi = send_ipi,      .flush_pages = flush_pages, .flush_space = flush_all,
    .flush_all = flush_all,    .load_root = load_root,     .now_ns = now_ns,
    .on_stall = on_stall,
};
