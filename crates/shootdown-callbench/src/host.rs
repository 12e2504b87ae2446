//! [`Host`]: what a machine provides.

use core::fmt;

use shootdown::CpuId;

/// A machine with real CPUs.
///
/// It runs one [worker](crate::Bench::work) on each CPU, with interrupts on, and has its second interrupt, the one that the
/// contenders' platform sends, call [`handle_ipi`](crate::Bench::handle_ipi).
pub trait Host: Sync {
    /// How many CPUs take part, from 0 on.
    fn cpus(&self) -> usize;

    /// The running CPU. Workers stay on theirs.
    fn current_cpu(&self) -> CpuId;

    /// Nanoseconds on a clock that all CPUs share.
    fn now_ns(&self) -> u64;

    /// One turn of a busy wait.
    fn pause(&self) {
        core::hint::spin_loop();
    }

    /// Sleeps until an interrupt comes; may wake for no reason, and must wake within milliseconds.
    fn halt(&self);

    /// Returns when no interrupt of the contenders is on its way to any CPU. On CPU 0, while the others wait.
    fn drain(&self);

    /// Drops one translation of this CPU, as a function of `shoot` does. Any context.
    fn forget_page(&self);

    /// Makes the running CPU a target of the engine that is measured.
    fn online(&self);

    /// Prints a line.
    fn print(&self, line: fmt::Arguments<'_>);
}
