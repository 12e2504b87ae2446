//! What a machine gives the torture.

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform, Shootdown};

use crate::memory::Memory;

/// A machine: an engine with CPUs behind it.
///
/// Methods are called from a worker's step, in its context. Those with a body do nothing, for hosts that cannot do more; such a `preempt` and
/// `rest` are counted as done all the same.
pub trait Host<const N: usize>: Sync
where
    Cpus<N>: Capacity,
{
    /// What the engine runs on.
    type Platform: Platform<Cpus = Cpus<N>>;
    /// What can be mapped; [`NoMemory`](crate::NoMemory) where nothing can.
    type Memory: Memory<N>;

    /// The engine under test.
    fn engine(&self) -> &Shootdown<Self::Platform>;

    /// Translations to check.
    fn memory(&self) -> &Self::Memory;

    /// The CPUs of the machine, whether online or not.
    fn possible_cpus(&self) -> CpuMask<Cpus<N>>;

    /// Keeps this CPU busy for `ns` nanoseconds. Any context, also inside a called function; serves nothing.
    fn busy(&self, ns: u64) {
        let platform = self.engine().platform();
        let start_ns = platform.now_ns();
        while platform.now_ns().wrapping_sub(start_ns) < ns {
            platform.relax();
        }
    }

    /// Lets another task have the CPU; the caller may go on elsewhere. Called from tasks with interrupts on, also
    /// between the sending of a request and its wait; and inside called functions. It must do nothing with interrupts off, and while
    /// [preemption is disabled](Platform::preempt_disable): a host that cannot ask its kernel keeps a count of its own for each CPU.
    fn preempt(&self) {}

    /// Lets the CPU go for about `ns` nanoseconds, as a task that sleeps. Called from tasks with interrupts on; as [`preempt`](Self::preempt) while preemption is disabled.
    fn rest(&self, ns: u64) {
        let _ = ns;
        self.preempt();
    }

    /// Takes `cpu`, which may be this one, out of service; returns when that is done, or false at once if it cannot be: a task that is bound to its
    /// CPU returns false for that. Called from tasks with interrupts on, for one CPU at a time. Where each CPU has one task, the one on `cpu` is asked to
    /// leave its space, call `offline` and wait to be brought back, between two steps; it enters its space again then. The [front page](crate#cpus-that-go-offline) has
    /// an example.
    fn take_offline(&self, cpu: CpuId) -> bool {
        let _ = cpu;
        false
    }

    /// Brings `cpu` back; returns when it is a target again.
    fn bring_online(&self, cpu: CpuId) {
        let _ = cpu;
    }
}
