//! [`CrossCall`]: what all of them can do.

use shootdown::{Capacity, CpuId, CpuMask};

/// Runs functions on other CPUs. `C::CPUS` is the capacity of the masks.
pub trait CrossCall<C: Capacity>: Sync {
    /// Runs `function` on every CPU of `targets`, the caller's own included if it is named, and returns when all
    /// have returned. Interrupts on, not inside a called function; the targets must all run.
    fn call(&self, targets: &CpuMask<C>, function: &(dyn Fn(CpuId) + Sync));

    /// The body of the interrupt. Interrupts off.
    fn handle_ipi(&self);

    /// Memory that it takes for the CPUs that it was made for, in bytes.
    fn bytes(&self) -> usize;

    /// What the cache line at `address` holds; `None` if it is none of these calls.
    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str>;
}
