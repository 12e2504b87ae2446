//! Torture for the `shootdown` engine: a random mix of everything that it offers, with checks of what it promises.
//!
//! The mix is one for all hosts: CPUs as threads on real silicon (`shootdown-hosted`), ring 0 of the reference kernel, and
//! the simulated machine. A host supplies CPUs, contexts and a clock ([`Host`]), and memory that is reached through
//! translations ([`Memory`]) where it has some; [`Torture::step`] does one operation of the mix and checks it.
//!
//! What is checked:
//!
//! * each function ran exactly once on every CPU that the call returned, on no other, on the CPU that it was told, and not
//!   after the call had returned;
//! * what the initiator wrote before a call is seen by the function, and what the function wrote is seen after the wait, both
//!   by relaxed atomics and by plain memory (a data race for ThreadSanitizer if the engine does not order them);
//! * a CPU that stayed online during a call was not left out of it;
//! * no posted call is lost, doubled or garbled, also when its target goes offline;
//! * no function runs where a CPU has interrupts off and does nothing but flush and poll: a host holds locks there;
//! * no load finds an older version of a page than a finished flush allows, nor a frame or a page table that a ticket gave back.
//!
//! A loss that makes a wait endless shows as no progress ([`Torture::progress`]): hosts watch that from outside.
//!
//! ```no_run
//! # use shootdown_torture::*;
//! static TORTURE: Torture<4> = Torture::new();
//!
//! // On one CPU; all are online.
//! fn begin<H: Host<4>>(host: &H, seed: u64) {
//!     TORTURE.begin(host, &Plan::new(seed));
//! }
//!
//! // On each CPU.
//! fn work<H: Host<4>>(host: &H, cpu: usize, is_over: impl Fn() -> bool) {
//!     while !is_over() {
//!         TORTURE.step(host, WorkerId::task(cpu), Context::Task);
//!     }
//!     host.memory().enter(None); // if there are spaces
//! }
//!
//! // On one CPU, when the others have left `work`.
//! fn end<H: Host<4>>(host: &H, elapsed_ns: u64) {
//!     TORTURE.finish(host);
//!     let summary = TORTURE.summary(host, elapsed_ns);
//!     assert_eq!(summary.violations(), 0, "{:?}", summary.first());
//! }
//! ```
//!
//! # CPUs that go offline
//!
//! A host whose CPUs can leave implements [`Host::take_offline`] and [`Host::bring_online`]. With one task a CPU that cannot leave it, a word for each CPU will do.
//! A CPU that is out does no steps, in interrupts neither: it keeps them off, or its timer, from before `offline` until `online` is done.
//!
//! ```no_run
//! # use core::sync::atomic::{AtomicUsize, Ordering::*};
//! # use shootdown::*;
//! # use shootdown_torture::*;
//! # fn interrupts_off() {}
//! # fn interrupts_on() {}
//! const IN: usize = 0;
//! const LEAVE: usize = 1;
//! const OUT: usize = 2;
//! const RETURN: usize = 3;
//! const ENDED: usize = 4;
//! static CPUS: [AtomicUsize; 4] = [const { AtomicUsize::new(IN) }; 4];
//!
//! fn wait(until: impl Fn() -> bool) {
//!     while !until() {
//!         core::hint::spin_loop();
//!     }
//! }
//!
//! // Host::take_offline. CPU 0 stays, and ends the run: nobody leaves from then on.
//! fn take_offline(me: CpuId, cpu: CpuId) -> bool {
//!     let word = &CPUS[cpu.index()];
//!     let may = cpu != me && cpu.index() != 0 && CPUS[0].load(Acquire) != ENDED;
//!     let asked = may && word.compare_exchange(IN, LEAVE, AcqRel, Relaxed).is_ok();
//!     wait(|| !asked || word.load(Acquire) == OUT);
//!     asked
//! }
//!
//! // Host::bring_online.
//! fn bring_online(cpu: CpuId) {
//!     let word = &CPUS[cpu.index()];
//!     word.store(RETURN, Release);
//!     wait(|| matches!(word.load(Acquire), IN | ENDED));
//! }
//!
//! // On each CPU, after each of its steps.
//! fn between_steps<H: Host<4>>(host: &H, cpu: usize) {
//!     if CPUS[cpu].load(Acquire) != LEAVE {
//!         return;
//!     }
//!     let space = host.memory().entered();
//!     host.memory().enter(None);
//!     interrupts_off();
//!     // `switch_away`, if `enter(None)` is lazy.
//!     host.engine().offline();
//!     CPUS[cpu].store(OUT, Release);
//!     wait(|| CPUS[cpu].load(Acquire) == RETURN);
//!     host.engine().online();
//!     CPUS[cpu].store(IN, Release);
//!     interrupts_on();
//!     host.memory().enter(space);
//! }
//!
//! // On each CPU, behind its last step. From ENDED on `take_offline` is refused.
//! fn end_steps<H: Host<4>>(torture: &Torture<4>, host: &H, cpu: usize, cpus: usize) {
//!     host.memory().enter(None);
//!     while CPUS[cpu].compare_exchange(IN, ENDED, AcqRel, Relaxed).is_err() {
//!         between_steps(host, cpu);
//!     }
//!     if cpu == 0 {
//!         let all_are = |states: &[usize]| CPUS[..cpus].iter().all(|word| states.contains(&word.load(Acquire)));
//!         wait(|| all_are(&[ENDED, OUT]));
//!         // One that was out ends when it is back.
//!         torture.bring_all_online(host);
//!         wait(|| all_are(&[ENDED]));
//!     }
//! }
//! ```
//!
//! Without spaces ([`Memory::spaces`] is 0) kernel pages are still changed and checked, if there are any; operations that need a space do not come. A host
//! whose interrupts get lost shows no violation, because the engine sends them again: look at `ipis_resent` of the engine's counters, too.
//!
//! 32 KiB of stack suffice, optimised, for a step of a task and, on top of it, one in an interrupt: the reference kernel's tasks have that.
//!
//! No allocation, no locks that wait: an operation that finds a page or a frame taken does without.

#![no_std]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]

mod calls;
mod churn;
mod flushes;
mod host;
mod mail;
mod memory;
mod operation;
mod pages;
mod policies;
mod posts;
mod progress;
mod record;
mod rng;
mod section;
mod step;
mod summary;
mod sync;
mod torture;
mod unlinked;
mod violation;

pub use host::Host;
pub use memory::{Memory, NoMemory, Region};
pub use operation::{Mix, Operation, Plan};
pub use pages::{FRAMES, PAGES, SPACES, WINDOW_PAGES};
pub use progress::Progress;
pub use record::{LANES, WorkerId};
pub use rng::Rng;
pub use step::{Context, Outcome};
pub use summary::Summary;
pub use torture::{TABLES, Torture};
pub use violation::{Promise, Violation};
