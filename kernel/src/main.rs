//! The reference kernel: proves the `shootdown` engine in ring 0 with real page tables, real
//! interrupts and unmodified Linux programs in ring 3.
//!
//! It is deliberately small and holds no shootdown logic of its own: all invalidation and all
//! calls to other CPUs go through [`platform::SHOOTDOWN`].
//!
//! From the top down; what is in a row knows only rows below it, and those beside it only where the text says so:
//!
//! | folder or file | what |
//! |---|---|
//! | [`start`] | from the first instruction to all CPUs running; sets the hooks of lower rows |
//! | [`traps`] | exceptions, interrupts and system calls, from the stubs to the handlers |
//! | [`syscall`], [`torture`], [`calls`] | the Linux system call surface; the engine's torture in ring 0; cross-CPU calls measured beside other kernels' |
//! | [`hotplug`] | CPUs that leave and come back |
//! | [`task`], [`fs`], [`zerocopy`] | threads, files, servers that work on their clients' pages: one circle |
//! | [`mod@panic`], [`watchdog`], then [`backtrace`] | the end, a stuck CPU, and what every CPU is doing |
//! | [`vm`] | virtual machines |
//! | [`exec`], then [`mm`] | program loading; address spaces and frames |
//! | [`random`], then [`time`], then [`boot`] | random bytes; clocks; what loader and firmware say, and the end of a boot |
//! | [`console`], then [`sync`], then [`platform`], with [`quiet`] and [`isolation`] | the serial line and the screen; locks; what the engine needs from the kernel, and is told on the way to user mode |
//! | [`irq`], [`preempt`], then [`latency`] | their switches, and how long they are off |
//! | [`user_memory`], then [`arch`] | places in user memory; what the processor wants: per-CPU data, switching, page tables, the clock |
//! | [`addr`], [`budget`], [`cpus`], [`cpu_stage`], [`errno`] | numbers |
#![no_std]
#![no_main]

extern crate alloc;

mod addr;
mod arch;
mod backtrace;
mod boot;
mod budget;
mod calls;
mod console;
mod cpu_stage;
mod cpus;
mod errno;
mod exec;
mod fs;
mod hotplug;
mod irq;
mod isolation;
mod latency;
mod mm;
mod panic;
mod platform;
mod preempt;
mod quiet;
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
mod vm;
mod watchdog;
mod zerocopy;
