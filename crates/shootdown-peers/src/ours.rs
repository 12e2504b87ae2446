//! The engine itself, behind the same trait.

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform, Shootdown};

use crate::{CrossCall, Lent};

impl<P: Platform, const N: usize> CrossCall<N> for Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    fn call(&self, targets: &CpuMask<N>, function: &(dyn Fn(CpuId) + Sync)) {
        self.call_many(targets, &|cpu: CpuId| function(cpu));
    }

    fn call_idempotent(&self, targets: &CpuMask<N>, function: &Lent<'_>) {
        Shootdown::call_idempotent(self, targets, function);
    }

    fn handle_ipi(&self) {
        Shootdown::handle_ipi(self);
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
