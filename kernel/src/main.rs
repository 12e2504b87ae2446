//! The reference kernel: proves the `shootdown` engine in ring 0 with real page tables, real
//! interrupts and unmodified Linux programs in ring 3.
//!
//! It is deliberately small and holds no shootdown logic of its own: all invalidation and all
//! calls to other CPUs go through [`platform::SHOOTDOWN`].
//!
//! | folder | what |
//! |---|---|
//! | [`boot`] | from the first instruction to all CPUs running |
//! | [`arch`] | what the processor wants: traps, per-CPU data, switching, user memory access |
//! | [`mm`], [`exec`] | address spaces, frames, program loading |
//! | [`hotplug`] | CPUs that leave and come back |
//! | [`backtrace`] | what every CPU is doing |
//! | [`latency`] | how long preemption and interrupts are off |
//! | [`calls`] | cross-CPU calls measured in ring 0, beside other kernels' algorithms |
//! | [`zerocopy`] | servers in user mode that work on their clients' pages |
//! | [`torture`] | the engine's torture in ring 0 |
//! | [`task`], [`syscall`], [`fs`] | threads, the Linux system call surface, files |
#![no_std]
#![no_main]

extern crate alloc;

mod addr;
mod arch;
mod backtrace;
mod boot;
mod calls;
mod console;
mod cpus;
mod errno;
mod exec;
mod fs;
mod hotplug;
mod irq;
mod latency;
mod mm;
mod panic;
mod platform;
mod preempt;
mod random;
#[cfg(feature = "selftest")]
mod selftest;
mod start;
mod sync;
mod syscall;
mod task;
mod time;
mod torture;
mod traps;
mod user_memory;
mod watchdog;
mod zerocopy;
