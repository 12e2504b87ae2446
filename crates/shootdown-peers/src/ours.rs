//! The engine itself, behind the same trait.

use shootdown::{Capacity, CpuId, CpuMask, CpuMemory, Cpus, Platform, Shootdown};

use crate::CrossCall;

/// The memory of an engine for up to `N` CPUs of which there are `cpus`, in bytes.
pub(crate) fn bytes_for<P: Platform, const N: usize>(cpus: usize) -> usize
where
    Cpus<N>: Capacity,
{
    size_of::<Shootdown<P, N>>() + cpus * size_of::<CpuMemory<N>>()
}

impl<P: Platform, const N: usize> CrossCall<N> for Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    fn call(&self, targets: &CpuMask<N>, function: &(dyn Fn(CpuId) + Sync)) {
        self.call_many(targets, function);
    }

    fn handle_ipi(&self) {
        Shootdown::handle_ipi(self);
    }

    fn bytes(&self) -> usize {
        bytes_for::<P, N>(self.ready_cpus().len())
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        Shootdown::line_name(self, address)
    }
}
