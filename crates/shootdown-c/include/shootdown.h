/*
 * Cross-CPU calls and TLB shootdown for kernels in C (C11; C++11 may include it too).
 *
 * Written from the source of crates/shootdown-c by its test; do not edit.
 *
 * The order of boot: shootdown_init, shootdown_attach for each CPU, the interrupt's vector (which acknowledges to the controller, then calls
 * shootdown_handle_ipi), shootdown_online on each CPU. Every spin loop that may run with interrupts off calls shootdown_poll.
 *
 * Each function says in which context it may be called, and which errors it answers with; an error means that nothing was done.
 * SHOOTDOWN_INVALID is also the answer to a pointer that is not aligned. What C
 * cannot be kept from, and nobody can see, is a duty of the caller:
 *
 * 1. Engine, CPU memory, spaces, tickets, walks, reclaims and nodes are all zero at first, are written by this library only, and stay where they are as
 *    long as their descriptions say.
 * 2. Pointers are null or lead to what their types say; arrays have as many elements as their counts say, texts end with a zero.
 *    SHOOTDOWN_CPUS_256 is defined in every file or in none, as the library was built; header and library are of one version.
 * 3. The platform keeps the duties that stand at shootdown_platform_t.
 * 4. Functions that are called on CPUs, and their data, may be used on any CPU, on several at once, until the call is done.
 * 5. Page tables are changed before the flush is submitted, under the lock that protects them. Frames and tables are reused only when the wait of the
 *    flush's ticket has answered SHOOTDOWN_OK.
 * 6. A root that a function is given maps what the kernel needs to go on, on every CPU, and its tables stay as long as the engine may load it.
 *
 * The library needs nothing of the kernel but the platform's functions and shootdown_panic; memcpy, memmove, memset, memcmp and bcmp come with
 * it (weak). It uses no floating point and no red zone.
 *
 * Interrupts are those of the running CPU. NMI handlers call nothing but shootdown_user_access_ok; then current_cpu is right in them, too. In a library that was
 * not optimised shootdown_init and shootdown_attach need as much stack as the engine or a CPU's memory has.
 */

#ifndef SHOOTDOWN_H
#define SHOOTDOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHOOTDOWN_ALIGNED(bytes) __attribute__((aligned(bytes)))

// As the count of a range: the whole space.
#define SHOOTDOWN_ALL_PAGES SIZE_MAX

// For tickets, walks, reclaims and nodes: all zero.
#ifdef __cplusplus
#define SHOOTDOWN_TICKET_INIT {}
#define SHOOTDOWN_WALK_INIT {}
#define SHOOTDOWN_RECLAIM_INIT {}
#define SHOOTDOWN_NODE_INIT {}
#else
#define SHOOTDOWN_TICKET_INIT {{0}}
#define SHOOTDOWN_WALK_INIT {{0}}
#define SHOOTDOWN_RECLAIM_INIT {{0}}
#define SHOOTDOWN_NODE_INIT {{0}}
#endif

#if !defined(SHOOTDOWN_CPUS_256)
// How many CPUs an engine knows: their numbers are below.
#define SHOOTDOWN_MAX_CPUS 64
#endif

#if defined(SHOOTDOWN_CPUS_256)
// How many CPUs an engine knows: their numbers are below.
#define SHOOTDOWN_MAX_CPUS 256
#endif

#if !defined(SHOOTDOWN_CPUS_256)
// Words of a set of CPUs.
#define SHOOTDOWN_CPU_WORDS 1
#endif

#if defined(SHOOTDOWN_CPUS_256)
// Words of a set of CPUs.
#define SHOOTDOWN_CPU_WORDS 4
#endif

#if !defined(SHOOTDOWN_CPUS_256)
// Bytes of an engine.
#define SHOOTDOWN_ENGINE_SIZE 8192
#endif

#if defined(SHOOTDOWN_CPUS_256)
// Bytes of an engine.
#define SHOOTDOWN_ENGINE_SIZE 32768
#endif

// Alignment of an engine.
#define SHOOTDOWN_ENGINE_ALIGN 128

#if !defined(SHOOTDOWN_CPUS_256)
// Bytes of the memory of one CPU.
#define SHOOTDOWN_MEMORY_SIZE 4096
#endif

#if defined(SHOOTDOWN_CPUS_256)
// Bytes of the memory of one CPU.
#define SHOOTDOWN_MEMORY_SIZE 8192
#endif

// Alignment of the memory of one CPU.
#define SHOOTDOWN_MEMORY_ALIGN 128

// Bytes of an address space.
#define SHOOTDOWN_SPACE_SIZE 1024

// Alignment of an address space.
#define SHOOTDOWN_SPACE_ALIGN 128

// Bytes of a ticket.
#define SHOOTDOWN_TICKET_SIZE 192

// Alignment of a ticket.
#define SHOOTDOWN_TICKET_ALIGN 8

// Bytes of a walk.
#define SHOOTDOWN_WALK_SIZE 128

// Alignment of a walk.
#define SHOOTDOWN_WALK_ALIGN 8

// Bytes of a reclaim.
#define SHOOTDOWN_RECLAIM_SIZE 192

// Alignment of a reclaim.
#define SHOOTDOWN_RECLAIM_ALIGN 8

// Bytes of a node.
#define SHOOTDOWN_NODE_SIZE 128

// Alignment of a node.
#define SHOOTDOWN_NODE_ALIGN 8

// No flush is served from the first step on: for what runs with caches off, or patches the responder.
#define SHOOTDOWN_WITHOUT_FLUSHES 1

// Nobody is interrupted: threads of the kernel come by shootdown_arrive, so that nobody holds a lock.
#define SHOOTDOWN_OF_THREADS 2

// These CPUs may still walk page tables: what they may walk is not given back (waits answer SHOOTDOWN_FAILED) until they are declared dead without this flag.
#define SHOOTDOWN_LOST 1

// Flag of a flush: page-table pages were unlinked and will be freed or reused. Its ranges then cover everything that they translated, not just what
// was mapped. Without it only leaf entries changed.
#define SHOOTDOWN_FREED_TABLES 1

// Flag of a flush: when the wait has returned, no CPU holds an old translation under a tag that is loaded, and none is left out that looks later. For
// changes in which the old entry and the new one must not be cached side by side: break before make, and changes of the page size on some processors.
// Clear the entry, flush, wait, write the new one.
#define SHOOTDOWN_STRICT 2

// As the CPU of shootdown_stat: the sum of all.
#define SHOOTDOWN_ALL_CPUS UINT32_MAX

// What became of a call: SHOOTDOWN_OK, or why nothing was done.
typedef int shootdown_status_t;

// The engine: one for the machine, all zero before shootdown_init, and never moved or freed after it.
typedef struct SHOOTDOWN_ALIGNED(128) shootdown_engine_t {
  uint8_t opaque[SHOOTDOWN_ENGINE_SIZE];
} shootdown_engine_t;

// A set of CPUs: CPU n is bit n % 64 of word n / 64.
typedef struct shootdown_cpus_t {
  // The bits.
  uint64_t words[SHOOTDOWN_CPU_WORDS];
} shootdown_cpus_t;

// A wait that takes long, for on_stall. The text is valid during the call only.
typedef struct shootdown_stall_t {
  // For how long the waiter has been waiting, in nanoseconds.
  uint64_t waited_ns;
  // The CPU whose request it is.
  uint32_t initiator;
  // The lowest CPU that has not answered.
  uint32_t target;
  // How many others have not either.
  uint32_t others;
  // All of it in one line, with what the target does instead. Ends with a zero.
  const char *text;
} shootdown_stall_t;

// Pages to forget: count pages of 2^page_shift bytes from the one that holds start on. page_shift is that of the smallest pages that may be mapped
// there (x86: 12, 21 or 30), also with SHOOTDOWN_FREED_TABLES; 12 if that is not known. Translations are dropped one for each such page.
typedef struct shootdown_range_t {
  // An address in the first page.
  size_t start;
  // How many pages; SHOOTDOWN_ALL_PAGES is everything.
  size_t count;
  // Binary logarithm of the size of a page, 12 to 48.
  uint32_t page_shift;
} shootdown_range_t;

// What was changed, for begin_secondary. It is valid during the call only.
typedef struct shootdown_change_t {
  // The pages.
  const struct shootdown_range_t *ranges;
  // How many ranges.
  size_t count;
  // SHOOTDOWN_FREED_TABLES if page-table pages will be freed or reused.
  uint32_t flags;
} shootdown_change_t;

// What the kernel provides. It is copied by shootdown_init. Functions may be called with interrupts on or off, except where they say otherwise;
// none may sleep, none may call back into the engine (but on_stall and begin_secondary: shootdown_poll, for a lock that they spin for; finish_secondary: see there), and none may leave by longjmp or an exception.
//
// The engine's promises rest on these duties, which nobody can check:
//
// 1. current_cpu is the true number of the running CPU, below SHOOTDOWN_MAX_CPUS, and does not change while interrupts are off or preemption is
//    disabled.
// 2. Between irq_save and the matching irq_restore no code of this CPU runs but the caller's; NMI handlers never enter the engine, but
//    for shootdown_user_access_ok, shootdown_leave_quiet and shootdown_enter_quiet.
// 3. After flush_pages, flush_space or flush_all this CPU uses no translation and no cached page-table entry that they name and that is
//    older than the call; walks after it see all stores to page tables that this CPU could see before.
// 4. After load_root this CPU uses no translation of another root, but global ones, nor one of this root that is older than the call.
// 5. What was written before send_ipi is visible to its target when the handler runs (x2APIC: MFENCE and LFENCE before the ICR is
//    written).
// 6. An accepted interrupt reaches its target once that enables interrupts, is acknowledged to the controller first, and leads to
//    shootdown_handle_ipi. Several may merge if the handler runs after the last was sent. One to another CPU that was refused is accepted in the end.
// 7. All functions may be called by several CPUs at once.
typedef struct shootdown_platform_t {
  // Passed to each of the functions; may be null.
  void *user;
  // The number of the running CPU. With interrupts and preemption on, the answer may be stale at once.
  uint32_t (*current_cpu)(void *user);
  // Disables interrupts on this CPU and returns what irq_restore needs. Nests.
  size_t (*irq_save)(void *user);
  // Puts back what irq_save returned, on the same CPU.
  void (*irq_restore)(void *user, size_t state);
  // Sends the engine's interrupt to a CPU that is online; to this one too, for what it posts to itself and to look again. Interrupts are off;
  // must not wait for the target, nor until that has taken its last one: it would hang, and only shootdown_look on a third CPU says so. Returns 0 if
  // it was sent, anything else if it could not be queued: the engine tries again. To this CPU itself it may be refused for ever, if the timer's tick
  // calls shootdown_look.
  int (*send_ipi)(void *user, uint32_t target);
  // Drops what this CPU has cached of count pages of 2^page_shift bytes from address start on, global translations too, and with freed
  // not 0 every cached page-table entry that leads there (x86: INVLPG does both while EFER.TCE is clear; where it may be
  // set, on AMD's processors, load CR3 with itself, too). count is at most 33. Interrupts are off.
  void (*flush_pages)(void *user, size_t start, size_t count, uint32_t page_shift, uint32_t freed);
  // Drops every translation and cached page-table entry of the loaded root that is not global (x86: load CR3). Interrupts are off.
  void (*flush_space)(void *user);
  // Drops every translation and cached page-table entry, global ones too (x86: toggle CR4.PGE). Interrupts are off.
  void (*flush_all)(void *user);
  // Makes this the page-table root of this CPU (x86: the value of CR3). Interrupts are off.
  void (*load_root)(void *user, uint64_t root);
  // Nanoseconds on a clock that does not run backwards on one CPU.
  uint64_t (*now_ns)(void *user);
  // May be null, then send_ipi is used: sends the interrupt to every CPU of the set, none of which is this one. As send_ipi.
  int (*send_ipi_mask)(void *user, const struct shootdown_cpus_t *targets);
  // May be null where kernel code is never preempted, then preempt_enable is too: forbids that the task leaves this CPU. Nests.
  void (*preempt_disable)(void *user);
  // Undoes one preempt_disable.
  void (*preempt_enable)(void *user);
  // May be null, then the processor's hint is used: one turn of a spin loop.
  void (*relax)(void *user);
  // May be null: a wait has taken longer than shootdown_set_stall_ns allows, in the waiter's context, or in that of shootdown_look; it goes on afterwards. It may print,
  // or stop the machine. Provide it: a hang is silent without.
  void (*on_stall)(void *user, const struct shootdown_stall_t *stall);
  // May be null where nobody listens (shootdown_listen), then the next two are too. Tables by which listener translates were changed: has it begin to drop that. Returns what
  // finish_secondary is asked with, or 0 if there is nothing more to wait for; before is 0 or what an earlier call for the same wait returned, perhaps for another listener: an answer that is not 0 stands for both. Interrupts
  // are off and locks of the kernel are held; must not wait; a lock that it takes is spun for with shootdown_poll.
  uint64_t (*begin_secondary)(void *user, void *listener, const struct shootdown_change_t *change, uint64_t before);
  // Whether what was begun is done: SHOOTDOWN_OK, SHOOTDOWN_BUSY to be asked again, anything else if the device does not answer. Called by the waiter, in its context, on any CPU.
  // May use the engine as that may.
  int (*finish_secondary)(void *user, uint64_t token);
  // Has listener let go of the tables and drop all. Until shootdown_release returns other CPUs may call begin_secondary for it: free it afterwards. Returns SHOOTDOWN_OK when it has.
  int (*release_secondary)(void *user, void *listener);
  // May be null where nobody calls shootdown_serialise: from here on this CPU executes nothing that it fetched or decoded before (x86: SERIALIZE, or a write of CR2; Arm: ISB;
  // RISC-V: FENCE.I; LoongArch: IBAR). Interrupts are off.
  void (*synchronise_here)(void *user);
} shootdown_platform_t;

// What the engine keeps for one CPU: one for each CPU, all zero before shootdown_attach, and never moved or freed after it.
typedef struct SHOOTDOWN_ALIGNED(128) shootdown_memory_t {
  uint8_t opaque[SHOOTDOWN_MEMORY_SIZE];
} shootdown_memory_t;

// A function that is called on CPUs: data as given with it, and the CPU that it runs on. It runs with interrupts off, as an interrupt handler
// does, on several CPUs at once: it must not sleep, must not enable interrupts, returns on the CPU on which it began, never by longjmp or an
// exception, and should be short. It may flush, kick and post; calling others and waiting for them is answered by SHOOTDOWN_IN_FUNCTION.
typedef void (*shootdown_function_t)(void *data, uint32_t cpu);

// The right, and the duty, to wait for one flush, kick or call. All zero (SHOOTDOWN_TICKET_INIT) before its first use; empty, and good for
// another one, after shootdown_ticket_wait or shootdown_ticket_drop. It is not copied, and one task uses it: the one that submitted, or one to which it was handed
// (shootdown_ticket_hand_over).
typedef struct SHOOTDOWN_ALIGNED(8) shootdown_ticket_t {
  uint8_t opaque[SHOOTDOWN_TICKET_SIZE];
} shootdown_ticket_t;

// The engine's view of one set of page tables: all zero before shootdown_space_init, and not moved or freed until shootdown_space_deinit.
typedef struct SHOOTDOWN_ALIGNED(128) shootdown_space_t {
  uint8_t opaque[SHOOTDOWN_SPACE_SIZE];
} shootdown_space_t;

// What is called in a rendezvous: on each CPU, once a step, from 0.
typedef void (*StepFunction)(void *data, uint32_t cpu, uint32_t step);

// What CPUs that have died did not run: calls that have ended without an answer, of each of which the function may have run, in part too; nodes that may be posted again.
typedef struct Unserved {
  // Calls.
  uint64_t calls;
  // Nodes.
  uint64_t nodes;
} Unserved;

// A function that can be posted to one CPU at a time, in any number and under any lock: memory of the caller's, all zero (SHOOTDOWN_NODE_INIT)
// before shootdown_node_init.
typedef struct SHOOTDOWN_ALIGNED(8) shootdown_node_t {
  uint8_t opaque[SHOOTDOWN_NODE_SIZE];
} shootdown_node_t;

// Spaces of which pages were unmapped that one flush is to be for. All zero (SHOOTDOWN_RECLAIM_INIT) before its first use; empty, and good for another one, after
// shootdown_reclaim_submit. It is not copied, and one task uses it at a time.
typedef struct SHOOTDOWN_ALIGNED(8) shootdown_reclaim_t {
  uint8_t opaque[SHOOTDOWN_RECLAIM_SIZE];
} shootdown_reclaim_t;

// A section in which this CPU reads page tables without their lock. All zero (SHOOTDOWN_WALK_INIT) before its first use; empty, and good for another one, after
// shootdown_walk_end. It lies on the stack of the task that walks.
typedef struct SHOOTDOWN_ALIGNED(8) shootdown_walk_t {
  uint8_t opaque[SHOOTDOWN_WALK_SIZE];
} shootdown_walk_t;

// It was done.
#define SHOOTDOWN_OK 0

// A pointer is null that must not be.
#define SHOOTDOWN_NULL 1

// An argument is out of its range: a pointer that is not aligned, a size that is not the library's, a flag or a name that is not known, a buffer
// that is too small.
#define SHOOTDOWN_INVALID 2

// The object was not initialised.
#define SHOOTDOWN_NOT_INITIALISED 3

// It was done before: the object is in use, the CPU has memory or is online. Or its memory was not zero at first.
#define SHOOTDOWN_ALREADY 4

// There is no such CPU: its number is not below SHOOTDOWN_MAX_CPUS.
#define SHOOTDOWN_UNKNOWN_CPU 5

// The running CPU has no memory: call shootdown_attach for it first.
#define SHOOTDOWN_NO_MEMORY 6

// The CPU is not online.
#define SHOOTDOWN_NOT_ONLINE 7

// What it takes is in use; try again.
#define SHOOTDOWN_BUSY 8

// A called function must not do that.
#define SHOOTDOWN_IN_FUNCTION 9

// A CPU has an address space loaded that must have left it first.
#define SHOOTDOWN_LOADED 10

// The CPU has no address space loaded.
#define SHOOTDOWN_NOT_LOADED 11

// The object belongs to another engine.
#define SHOOTDOWN_OTHER_ENGINE 12

// A secondary TLB did not answer: it may go on using what it was told of.
#define SHOOTDOWN_FAILED 13

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes an engine of zeroed memory. size is sizeof(shootdown_engine_t): it tells whether header and library are for the same number of CPUs. Once,
// on any CPU, before anything else; does not block.
//
// Errors: SHOOTDOWN_NULL (also for a required function of the platform), SHOOTDOWN_INVALID (size, alignment, or one of preempt_disable and
// preempt_enable without the other), SHOOTDOWN_ALREADY.
shootdown_status_t shootdown_init(struct shootdown_engine_t *engine,
                                  size_t size,
                                  const struct shootdown_platform_t *platform);

// Gives cpu its zeroed memory, which it needs before it uses the engine in any way (shootdown_poll does nothing before). Once for each CPU
// that there is, on any CPU; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_ALREADY (the CPU has memory, or
// the memory is another CPU's).
shootdown_status_t shootdown_attach(struct shootdown_engine_t *engine,
                                    uint32_t cpu,
                                    struct shootdown_memory_t *memory);

// Makes the running CPU a target, and drops every translation that it holds. Call it on the CPU itself, with interrupts off, when its number, its
// vector and its interrupt controller work; does not block. From then on a CPU that waits with interrupts off calls shootdown_poll in its loop.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_ALREADY, SHOOTDOWN_IN_FUNCTION.
shootdown_status_t shootdown_online(struct shootdown_engine_t *engine);

// Ends what shootdown_online began: when it returns, the CPU is no target any more, and what was sent to it has run. Call it on the CPU itself,
// with interrupts off, after it has left its address space, and with no lock held that another CPU may spin for or that a called function takes.
// Spins for all other online CPUs, and runs what this CPU was called for. Afterwards the CPU may be halted, or come online again.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE, SHOOTDOWN_LOADED (call shootdown_switch_away
// first), SHOOTDOWN_IN_FUNCTION.
shootdown_status_t shootdown_offline(struct shootdown_engine_t *engine);

// The body of the engine's interrupt vector: call it there, with interrupts off, after the interrupt was acknowledged to the controller. Does not
// block; runs the functions that were called here.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY; an interrupt that comes before there is anything to serve
// is harmless.
shootdown_status_t shootdown_handle_ipi(struct shootdown_engine_t *engine);

// Serves the flushes that wait for this CPU, and no functions, so it may be called under every lock: call it in every loop that spins with interrupts
// off for something that another CPU holds. Any context but NMI; does not block. Does nothing on a CPU without memory.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
shootdown_status_t shootdown_poll(struct shootdown_engine_t *engine);

// Runs function on target and waits until it has returned. Interrupts and preemption in any state; spins. What this CPU was called for runs
// while it waits, in the caller's context: hold no lock that such a function takes, and none that a target spins for with interrupts off.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_IN_FUNCTION, SHOOTDOWN_NOT_ONLINE
// (target); then the function has not run.
shootdown_status_t shootdown_call_one(struct shootdown_engine_t *engine,
                                      uint32_t target,
                                      shootdown_function_t function,
                                      void *data);

// Runs function on every online CPU of targets, this one too if it is named, and waits until all have returned. Writes to ran, unless it
// is null, which they were. Context and errors as shootdown_call_one, but a target that is not online is passed over.
shootdown_status_t shootdown_call_many(struct shootdown_engine_t *engine,
                                       const struct shootdown_cpus_t *targets,
                                       shootdown_function_t function,
                                       void *data,
                                       struct shootdown_cpus_t *ran);

// Runs function on every online CPU. As shootdown_call_many.
shootdown_status_t shootdown_call_all(struct shootdown_engine_t *engine,
                                      shootdown_function_t function,
                                      void *data,
                                      struct shootdown_cpus_t *ran);

// Has every online CPU of targets run function, and waits for nothing: neither for them nor for a free slot, of which a CPU has three. Any
// context but NMI, under any lock, also inside a called function. This CPU, if it is named, runs it in its next interrupt, as what it posts to
// itself by shootdown_post_node; three such functions may wait. Writes to sent, unless it is null, who will run it. data must stay valid until all
// have.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_BUSY (all slots of this CPU are taken, or three functions wait
// for itself, or it is not online and another CPU posts that is not, or goes offline: try again); then nothing was sent.
shootdown_status_t shootdown_post(struct shootdown_engine_t *engine,
                                  const struct shootdown_cpus_t *targets,
                                  shootdown_function_t function,
                                  void *data,
                                  struct shootdown_cpus_t *sent);

// Has every online CPU of targets run function, and puts into ticket, which is empty, the right to wait until all have. Context as
// shootdown_call_one: it may wait for a free slot. data must stay valid until the ticket was waited for.
//
// Errors: as shootdown_call_many; SHOOTDOWN_ALREADY (the ticket is not empty).
shootdown_status_t shootdown_submit_call(struct shootdown_engine_t *engine,
                                         const struct shootdown_cpus_t *targets,
                                         shootdown_function_t function,
                                         void *data,
                                         struct shootdown_ticket_t *ticket);

// Has target run function, and puts into ticket, which is empty, the right to wait until it has, or to give the call up by shootdown_ticket_give_up as long as function has not begun. Any
// context but NMI, under any lock, also inside a called function: it waits for nothing, also not for a free slot. data must stay valid until the ticket was waited for or given up.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE (target), SHOOTDOWN_INVALID (target is this CPU), SHOOTDOWN_BUSY (all
// slots of this CPU are taken, or it is not online and another CPU posts that is not, or goes offline: try again), SHOOTDOWN_ALREADY (the ticket is not empty); then nothing was sent.
shootdown_status_t shootdown_try_submit_call(struct shootdown_engine_t *engine,
                                             uint32_t target,
                                             shootdown_function_t function,
                                             void *data,
                                             struct shootdown_ticket_t *ticket);

// Has every online CPU of targets, or of all if that is null, pass through the engine once, but for this one: a halted CPU is awake then, a virtual
// CPU has left its guest, a CPU in a stretch with interrupts off that does not poll has left it. Puts into ticket, which is empty, the
// right to wait for that; if ticket is null, nobody waits. Any context but NMI, also inside a called function; it may wait for a free
// slot, serving flushes.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_ALREADY (the ticket is not empty).
shootdown_status_t shootdown_kick(struct shootdown_engine_t *engine,
                                  const struct shootdown_cpus_t *targets,
                                  struct shootdown_ticket_t *ticket);

// Has every online CPU of targets, or of all if that is null, fetch its instructions anew, this one too, by synchronise_here of the platform. Write the changed code and clean the caches
// before. Until the wait is over a CPU may execute what was there before. Ticket and context as shootdown_kick.
//
// Errors: as shootdown_kick, and SHOOTDOWN_INVALID if the platform has no synchronise_here.
shootdown_status_t shootdown_serialise(struct shootdown_engine_t *engine,
                                       const struct shootdown_cpus_t *targets,
                                       struct shootdown_ticket_t *ticket);

// A full barrier on every CPU that runs in space, this one too, between this call and the end of the wait (Linux: membarrier, private expedited); lazy CPUs are left alone, and issue one
// before they use the space again. Ticket and context as shootdown_kick.
//
// Errors: as shootdown_kick, and SHOOTDOWN_OTHER_ENGINE.
shootdown_status_t shootdown_barrier(struct shootdown_engine_t *engine,
                                     struct shootdown_space_t *space,
                                     struct shootdown_ticket_t *ticket);

// Runs function on target and waits until it has returned, also where the target spins for a lock of the caller's, if its spin loop calls shootdown_poll: for what only that CPU can do, such
// as giving back vector registers. The function uses nothing of the engine, takes no lock, waits for nothing and leaves interrupts off: it runs wherever the target polls. Any context but NMI,
// also inside a called function; spins, serving flushes. Not between shootdown_walk_begin and shootdown_walk_end.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE (target); then the function has not run.
shootdown_status_t shootdown_ask(struct shootdown_engine_t *engine,
                                 uint32_t target,
                                 shootdown_function_t function,
                                 void *data);

// Has all online CPUs of targets, and this one, run function at the same time: it begins nowhere before all are inside, and none leaves before it has returned everywhere. In steps, 1 to 64: none
// begins before all CPUs are done with the one before. CPUs come from the interrupt, or where they poll or wait, and wait for each other with interrupts off, serving flushes. The function
// uses nothing of the engine, takes no lock, waits for nothing and leaves interrupts off. No CPU comes online or goes offline meanwhile. Not inside a called function, nor between shootdown_walk_begin and
// shootdown_walk_end; no lock is held that a CPU may spin for without polling. Writes to absent, unless it is null, who did not come within limit_ns.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (steps or flags), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_IN_FUNCTION, SHOOTDOWN_FAILED (not all came in time: nobody has run the function).
shootdown_status_t shootdown_rendezvous(struct shootdown_engine_t *engine,
                                        const struct shootdown_cpus_t *targets,
                                        uint64_t limit_ns,
                                        uint32_t steps,
                                        uint32_t flags,
                                        StepFunction function,
                                        void *data,
                                        struct shootdown_cpus_t *absent);

// Comes to a rendezvous of SHOOTDOWN_OF_THREADS that wants this CPU, and returns when it is over. SHOOTDOWN_BUSY if there is none now. No lock held.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_BUSY.
shootdown_status_t shootdown_arrive(struct shootdown_engine_t *engine);

// This CPU leaves the kernel, for user mode or a guest, and uses nothing of it until shootdown_leave_quiet: no kernel code and no kernel memory but what is never changed or unmapped, on
// the rest of its way out and on every way in (system call, interrupt, exception, NMI, machine check, VM exit) up to that call. Meanwhile flushes of the kernel's part, kicks,
// shootdown_serialise and shootdown_post_deferrable do not interrupt it. Interrupts off, last of all.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY; then it is not quiet.
shootdown_status_t shootdown_enter_quiet(struct shootdown_engine_t *engine);

// This CPU is in the kernel again, and makes good what it has missed: all translations go, instructions are fetched anew, and it interrupts itself, where there was anything. First on every way
// in, also of an NMI, with interrupts off. SHOOTDOWN_BUSY if it was in the kernel already; if not, a handler that returns calls shootdown_enter_quiet again.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_BUSY.
shootdown_status_t shootdown_leave_quiet(struct shootdown_engine_t *engine);

// These CPUs have stopped for good: whatever waits for them ends, and what they had begun is completed. They are offline. Those that have died together are declared together. Until they are reset and come
// online again they execute nothing, and walk no page tables but the kernel's permanent ones, or else flags has SHOOTDOWN_LOST. Their stacks, and what they have lent, stay until
// shootdown_is_settled says so. Any context but NMI; spins for all other online CPUs, serving flushes: no lock is held that they spin for without polling. Not between shootdown_walk_begin and shootdown_walk_end. Writes to
// unserved, unless it is null, what they have not run.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (flags, or this CPU is among them), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY.
shootdown_status_t shootdown_declare_dead(struct shootdown_engine_t *engine,
                                          const struct shootdown_cpus_t *cpus,
                                          uint32_t flags,
                                          struct Unserved *unserved);

// SHOOTDOWN_OK if all that a CPU had begun that has died is complete, and nobody uses what it has lent: its stacks may be used again, and it may come back. SHOOTDOWN_BUSY if not. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_BUSY.
shootdown_status_t shootdown_is_settled(struct shootdown_engine_t *engine,
                                        uint32_t cpu);

// Writes to cpus the CPUs that are online now. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
shootdown_status_t shootdown_ready_cpus(const struct shootdown_engine_t *engine, struct shootdown_cpus_t *cpus);

// Binds a function and its data to zeroed memory. Once, before it is posted. The memory may be freed, or zeroed to bind another function, when
// the function has returned as often as posts of the node were accepted: not inside the function, and shootdown_node_is_posted does not say
// it. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_ALREADY.
shootdown_status_t shootdown_node_init(struct shootdown_engine_t *engine,
                                       struct shootdown_node_t *node,
                                       shootdown_function_t function,
                                       void *data);

// Has target, this CPU too, run the node's function in its next interrupt, after what was posted to it before. Any context but NMI, also inside a
// called function and under any lock; never waits for other CPUs. It may be posted again as soon as the function begins to run.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_NO_MEMORY,
// SHOOTDOWN_NOT_ONLINE (target), SHOOTDOWN_BUSY: it is posted and has not begun to run, so it will; or, where the running CPU is not online, another CPU
// that is not online posts or one goes offline: try again. With each of them nothing was sent by this call.
shootdown_status_t shootdown_post_node(struct shootdown_engine_t *engine,
                                       uint32_t target,
                                       struct shootdown_node_t *node);

// As shootdown_post_node, but does not interrupt a target that is quiet (shootdown_enter_quiet): that one runs the function when it is in the kernel again.
//
// Errors: as there.
shootdown_status_t shootdown_post_deferrable(struct shootdown_engine_t *engine,
                                             uint32_t target,
                                             struct shootdown_node_t *node);

// Writes to is_posted whether the node waits for its CPU; a hint, as it may begin to run meanwhile. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED.
shootdown_status_t shootdown_node_is_posted(const struct shootdown_node_t *node,
                                            bool *is_posted);

// Makes a space of zeroed memory. root is what load_root takes: the tables map what the kernel and the engine need to go on, are those of no other space,
// are loaded by the engine alone, and stay until shootdown_space_deinit. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED (the engine), SHOOTDOWN_ALREADY.
shootdown_status_t shootdown_space_init(struct shootdown_engine_t *engine,
                                        struct shootdown_space_t *space,
                                        uint64_t root);

// Ends a space, whose tables may be freed then: no CPU has it loaded, lazily or not, and nobody uses it in any other way. Any context; does
// not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_LOADED (some CPU has not left
// it: its tables must not be freed), SHOOTDOWN_BUSY (somebody listens: call shootdown_release before).
shootdown_status_t shootdown_space_deinit(struct shootdown_engine_t *engine,
                                          struct shootdown_space_t *space);

// Makes space the loaded one of this CPU, and leaves the one that was loaded so far, lazily or not. The engine loads the root. Interrupts in any
// state, but the caller must not leave this CPU meanwhile; does not block. If space is loaded already, ends lazy mode, or does nothing.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE,
// SHOOTDOWN_IN_FUNCTION.
shootdown_status_t shootdown_switch_to(struct shootdown_engine_t *engine,
                                       struct shootdown_space_t *space);

// Leaves the space that this CPU has loaded for kernel_root, which maps no user memory and whose tables stay for ever. Context as
// shootdown_switch_to.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE, SHOOTDOWN_IN_FUNCTION, SHOOTDOWN_NOT_LOADED.
shootdown_status_t shootdown_switch_away(struct shootdown_engine_t *engine,
                                         uint64_t kernel_root);

// Keeps the space loaded while this CPU runs something that uses no user memory: its idle loop, a kernel thread. Flushes leave the CPU alone, but
// those that free tables: at the first of these it loads kernel_root, which is as in shootdown_switch_away. shootdown_switch_to or
// shootdown_switch_away ends it; until then the space must stay. Context and errors as shootdown_switch_away.
shootdown_status_t shootdown_enter_lazy(struct shootdown_engine_t *engine,
                                        uint64_t kernel_root);

// Writes to is_ok whether code that interrupted this CPU anywhere may touch user memory of space: false while another space or none is loaded, between
// an early acknowledgement and the flush that it promised, and in lazy mode. For NMI handlers: any context, does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY.
shootdown_status_t shootdown_user_access_ok(const struct shootdown_engine_t *engine,
                                            const struct shootdown_space_t *space,
                                            bool *is_ok);

// Starts making every CPU forget count ranges of space, here and elsewhere, and puts into ticket, which is empty, the duty to wait for the rest.
// Call it after changing the page tables and before releasing the lock that protects them; unlock, wait, and only then reuse frames and
// tables. No range without SHOOTDOWN_FREED_TABLES is nothing to do, with it everything. Any context but NMI, also inside a called
// function and under locks whose spin loops poll; does not wait for other CPUs (it may wait for a free slot of this one, serving flushes).
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (a shift or a flag), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY,
// SHOOTDOWN_ALREADY (the ticket is not empty); then nothing is flushed, and nothing may be reused.
shootdown_status_t shootdown_submit_flush(struct shootdown_engine_t *engine,
                                          struct shootdown_space_t *space,
                                          const struct shootdown_range_t *ranges,
                                          size_t count,
                                          uint32_t flags,
                                          struct shootdown_ticket_t *ticket);

// As shootdown_submit_flush, for the kernel's part, which all spaces share; global pages too.
shootdown_status_t shootdown_submit_flush_kernel(struct shootdown_engine_t *engine,
                                                 const struct shootdown_range_t *ranges,
                                                 size_t count,
                                                 uint32_t flags,
                                                 struct shootdown_ticket_t *ticket);

// As shootdown_submit_flush, and waits at once: under a lock only if every CPU that spins for it polls.
//
// Errors: as there, and SHOOTDOWN_FAILED: a secondary TLB may go on using what was flushed, which must not be reused.
shootdown_status_t shootdown_flush(struct shootdown_engine_t *engine,
                                   struct shootdown_space_t *space,
                                   const struct shootdown_range_t *ranges,
                                   size_t count,
                                   uint32_t flags);

// As shootdown_flush, for the kernel's part.
shootdown_status_t shootdown_flush_kernel(struct shootdown_engine_t *engine,
                                          const struct shootdown_range_t *ranges,
                                          size_t count,
                                          uint32_t flags);

// Leaf entries of space were cleared, whose flush may come late: adds the CPUs that may hold them. Call it after the change and before releasing the lock that protects the
// tables, for each space that mapped a page. The page must be clean, or not be stored before the flush: until then CPUs may write to it. Any context but NMI; does not wait
// for other CPUs. Who takes rights away, copies on a write or unmaps for a process waits for a flush instead.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE (also if spaces of two engines are added), SHOOTDOWN_NO_MEMORY,
// SHOOTDOWN_BUSY (another CPU adds to it, too).
shootdown_status_t shootdown_reclaim_add(struct shootdown_engine_t *engine,
                                         struct shootdown_reclaim_t *reclaim,
                                         struct shootdown_space_t *space);

// Starts one flush for all spaces that were added, with one interrupt a CPU, puts the duty to wait for it into ticket, which is empty, and empties reclaim. Frames of the pages are
// reused after the wait. Context as shootdown_submit_flush.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED (nothing was added: there is nothing to wait for), SHOOTDOWN_NO_MEMORY,
// SHOOTDOWN_ALREADY (the ticket is not empty).
shootdown_status_t shootdown_reclaim_submit(struct shootdown_reclaim_t *reclaim,
                                            struct shootdown_ticket_t *ticket);

// From here on each flush of space, or of the kernel's part if space is null, is told to listener, which is not null and whose meaning is the kernel's, by begin_secondary and
// finish_secondary of the platform. Begin to read the tables only when this has returned. Rights that are only added make no flush. Where several keep
// translations of one space, the kernel tells them one by one. Calls of this, shootdown_unlisten and shootdown_release for one space come one after the other. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (also if the platform lacks one of the three functions), SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE,
// SHOOTDOWN_ALREADY (somebody listens there).
shootdown_status_t shootdown_listen(struct shootdown_engine_t *engine,
                                    struct shootdown_space_t *space,
                                    void *listener);

// Nobody listens to flushes of space, or of the kernel's part if it is null, any more, if somebody did. When this returns, no begin_secondary is under way or comes; what was begun is
// still finished. Its device must not read the tables any more before. Interrupts and preemption in any state; spins as long as another CPU is inside begin_secondary, serving the
// flushes of this CPU: hold no lock that this takes.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE.
shootdown_status_t shootdown_unlisten(struct shootdown_engine_t *engine,
                                      struct shootdown_space_t *space);

// Has the listener of space, if there is one, let go of its tables by release_secondary. It is told nothing any more. Before shootdown_space_deinit. Context as
// shootdown_unlisten.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_FAILED (it did not let go, and listens still: the tables must
// stay).
shootdown_status_t shootdown_release(struct shootdown_engine_t *engine,
                                     struct shootdown_space_t *space);

// Writes to is_done whether waiting would return at once; an empty ticket is done. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID.
shootdown_status_t shootdown_ticket_is_done(const struct shootdown_ticket_t *ticket, bool *is_done);

// Waits and empties the ticket. Of a flush: when it returns SHOOTDOWN_OK, no CPU uses the old translations any more, and frames and tables that
// they led to may be reused; of a kick: all targets have answered; of a call: all targets have run it. Interrupts and preemption in any
// state; spins, serving the flushes of this CPU, and for a call its functions too (context as shootdown_call_one).
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED (it is empty: nothing was submitted, or it was waited for before),
// SHOOTDOWN_IN_FUNCTION (of a call, inside a called function: the ticket stays as it was), SHOOTDOWN_FAILED (of a flush: a secondary TLB does not answer and may go on using the old
// translations, so nothing may be reused; wait again, or shootdown_ticket_give_up).
shootdown_status_t shootdown_ticket_wait(struct shootdown_ticket_t *ticket);

// What a ticket must meet before its memory goes out of use, on every path: waits if it was not waited for, and does nothing if it is empty.
// Otherwise as shootdown_ticket_wait.
shootdown_status_t shootdown_ticket_drop(struct shootdown_ticket_t *ticket);

// Empties the ticket of a flush whose wait has answered SHOOTDOWN_FAILED. What the flush was about may be reused only if the device has been cut off from it. Or that of a call of
// shootdown_try_submit_call whose function has not begun: then it never will. Any context but NMI; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (of a flush, its wait has not failed; of a kick), SHOOTDOWN_NOT_INITIALISED (it is empty), SHOOTDOWN_NO_MEMORY, SHOOTDOWN_BUSY (the function has begun or has
// returned, or the call is one of shootdown_submit_call: the ticket stays, wait for it).
shootdown_status_t shootdown_ticket_give_up(struct shootdown_ticket_t *ticket);

// Does what is left of a flush on the CPU that submitted it, by the task that did: afterwards any task may wait for the ticket, on any CPU, such as one that frees memory. Tickets of kicks
// stay as they are. Interrupts and preemption in any state; does not wait for other CPUs.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (of a call), SHOOTDOWN_NOT_INITIALISED (it is empty).
shootdown_status_t shootdown_ticket_hand_over(struct shootdown_ticket_t *ticket);

// Begins a section: until shootdown_walk_end no page table of space is freed or reused, because flushes with SHOOTDOWN_FREED_TABLES or SHOOTDOWN_STRICT and
// shootdown_sync_walks wait. Tables stay, pages do not: read an entry once, take a reference to the page unless it has none left, then read the entry again.
// Interrupts are off from here to shootdown_walk_end, on this CPU. Inside, poll as in any lock; take no lock whose holder may wait for freed tables (try, and end the
// section if that fails); do not wait in the engine, flush freed tables, call and wait, load a root or become lazy: the engine panics at these. Sections may lie
// in each other, the inner one ends first. Does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY, SHOOTDOWN_NOT_ONLINE, SHOOTDOWN_ALREADY (walk is
// in use).
shootdown_status_t shootdown_walk_begin(struct shootdown_engine_t *engine,
                                        struct shootdown_space_t *space,
                                        struct shootdown_walk_t *walk);

// Ends a section on the CPU that began it, and answers what waited for its end.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (also on another CPU), SHOOTDOWN_NOT_INITIALISED (it is empty).
shootdown_status_t shootdown_walk_end(struct shootdown_walk_t *walk);

// Waits until every CPU that was walking tables of space has ended its section: for tables that change and stay in use. Unlink the table first. Flushes with
// SHOOTDOWN_FREED_TABLES do the same by themselves. Interrupts and preemption in any state; spins, serving the flushes of this CPU. Not inside a section.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_OTHER_ENGINE, SHOOTDOWN_NO_MEMORY.
shootdown_status_t shootdown_sync_walks(struct shootdown_engine_t *engine,
                                        struct shootdown_space_t *space);

// The kernel's, needed by a library with the feature panic-handler: gets one line, which is valid during the call, and does not return. It is called
// when the library finds a broken duty that no error can answer.
extern void shootdown_panic(const char *text);

// Writes to value the counter of this name of cpu, or of all (SHOOTDOWN_ALL_CPUS); zero on a CPU without memory. Names are those of the Rust
// structure shootdown::watch::Stats: requests_published, ipis_sent, functions_run, remote_flushes, early_acks ... Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_UNKNOWN_CPU, SHOOTDOWN_INVALID (there is no such counter).
shootdown_status_t shootdown_stat(const struct shootdown_engine_t *engine,
                                  uint32_t cpu,
                                  const char *name,
                                  uint64_t *value);

// Writes to buffer, of capacity bytes (64 are enough), the name of counter number index. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_INVALID (there is no further counter, or the buffer is too small).
shootdown_status_t shootdown_stat_name(size_t index, char *buffer, size_t capacity);

// Sets the policy for requests submitted from now on: best (the default), published or before, and behind it what is on besides, each after a +:
// concurrent, inline, early-ack, prefetch, defer. Under before, and what is built on it without concurrent, preemption is disabled from a
// flush's submission until its ticket has been waited for, on the CPU that submitted it: the task does not sleep or yield in between. Any
// context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_INVALID (a word is not known).
shootdown_status_t shootdown_set_policy(struct shootdown_engine_t *engine,
                                        const char *name);

// Writes to buffer, of capacity bytes (16 are enough), the name of the policy in force; custom for a combination without a name. Any context; does
// not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED, SHOOTDOWN_INVALID (the buffer is too small).
shootdown_status_t shootdown_policy_name(const struct shootdown_engine_t *engine,
                                         char *buffer,
                                         size_t capacity);

// Looks after requests that nobody waits for in the engine, since their CPU has posted or does not come back from send_ipi, and reports those to
// on_stall, and interrupts again, that take twice as long as shootdown_set_stall_ns allows. Asks again for an interrupt to this CPU itself that was
// refused. For the timer's tick of each CPU; any context but NMI, does not block. Does nothing on a CPU without memory.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
shootdown_status_t shootdown_look(struct shootdown_engine_t *engine);

// Has waits that take longer than stall_ns nanoseconds reported to on_stall, again after twice, four times ... as long. At the start it is ten
// seconds; 0 is never. Any context; does not block.
//
// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
shootdown_status_t shootdown_set_stall_ns(struct shootdown_engine_t *engine,
                                          uint64_t stall_ns);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHOOTDOWN_H */

#ifdef __cplusplus
#define SHOOTDOWN_ASSERT(claim) static_assert(claim, #claim)
#define SHOOTDOWN_ALIGN_OF(type) alignof(type)
#else
#define SHOOTDOWN_ASSERT(claim) _Static_assert(claim, #claim)
#define SHOOTDOWN_ALIGN_OF(type) _Alignof(type)
#endif
SHOOTDOWN_ASSERT(sizeof(shootdown_engine_t) == SHOOTDOWN_ENGINE_SIZE);
SHOOTDOWN_ASSERT(SHOOTDOWN_ALIGN_OF(shootdown_engine_t) == SHOOTDOWN_ENGINE_ALIGN);
SHOOTDOWN_ASSERT(sizeof(shootdown_memory_t) == SHOOTDOWN_MEMORY_SIZE);
SHOOTDOWN_ASSERT(SHOOTDOWN_ALIGN_OF(shootdown_memory_t) == SHOOTDOWN_MEMORY_ALIGN);
SHOOTDOWN_ASSERT(sizeof(shootdown_space_t) == SHOOTDOWN_SPACE_SIZE);
SHOOTDOWN_ASSERT(SHOOTDOWN_ALIGN_OF(shootdown_space_t) == SHOOTDOWN_SPACE_ALIGN);
SHOOTDOWN_ASSERT(sizeof(shootdown_ticket_t) == SHOOTDOWN_TICKET_SIZE);
SHOOTDOWN_ASSERT(SHOOTDOWN_ALIGN_OF(shootdown_ticket_t) == SHOOTDOWN_TICKET_ALIGN);
SHOOTDOWN_ASSERT(sizeof(shootdown_walk_t) == SHOOTDOWN_WALK_SIZE);
SHOOTDOWN_ASSERT(SHOOTDOWN_ALIGN_OF(shootdown_walk_t) == SHOOTDOWN_WALK_ALIGN);
SHOOTDOWN_ASSERT(sizeof(shootdown_reclaim_t) == SHOOTDOWN_RECLAIM_SIZE);
SHOOTDOWN_ASSERT(SHOOTDOWN_ALIGN_OF(shootdown_reclaim_t) == SHOOTDOWN_RECLAIM_ALIGN);
SHOOTDOWN_ASSERT(sizeof(shootdown_node_t) == SHOOTDOWN_NODE_SIZE);
SHOOTDOWN_ASSERT(SHOOTDOWN_ALIGN_OF(shootdown_node_t) == SHOOTDOWN_NODE_ALIGN);
SHOOTDOWN_ASSERT(sizeof(uintptr_t) == sizeof(size_t));
#undef SHOOTDOWN_ASSERT
#undef SHOOTDOWN_ALIGN_OF
