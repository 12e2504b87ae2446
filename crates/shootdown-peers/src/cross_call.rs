//! [`CrossCall`]: what all of them can do.

use shootdown::{Capacity, CpuId, CpuMask, Cpus};

/// A function that lives elsewhere.
pub type Lent<'a> = &'a (dyn Fn(CpuId) + Sync);

/// Runs functions on other CPUs. `N` is the capacity of the masks.
pub trait CrossCall<const N: usize>: Sync
where
    Cpus<N>: Capacity,
{
    /// Runs `function` on every CPU of `targets`, the caller's own included if it is named, and returns when all
    /// have returned. Interrupts on, not inside a called function; the targets must all run.
    fn call(&self, targets: &CpuMask<N>, function: &(dyn Fn(CpuId) + Sync));

    /// The same with a function that several callers may lend at the same time (the same one at the same address) and of
    /// which a run that began after all of them had called does for all. Who cannot tell runs it for each.
    fn call_idempotent(&self, targets: &CpuMask<N>, function: &Lent<'_>) {
        self.call(targets, *function);
    }

    /// The body of the interrupt. Interrupts off.
    fn handle_ipi(&self);

    /// Memory that it takes for the CPUs that it was made for, in bytes.
    fn bytes(&self) -> usize;

    /// What the cache line at `address` holds; `None` if it is none of these calls.
    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str>;
}
