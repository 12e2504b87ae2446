//! The engine itself, behind the same trait.

use shootdown::{CpuId, CpuMask, CpuMemory, Platform, Shootdown};

use crate::CrossCall;

/// The memory of an engine for up to `P::Cpus::CPUS` CPUs of which there are `cpus`, in bytes.
pub(crate) fn bytes_for<P: Platform>(cpus: usize) -> usize {
    size_of::<Shootdown<P>>() + cpus * size_of::<CpuMemory<P>>()
}

impl<P: Platform> CrossCall<P::Cpus> for Shootdown<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        self.call_many(targets, function);
    }

    fn handle_ipi(&self) {
        Shootdown::handle_ipi(self);
    }

    fn bytes(&self) -> usize {
        bytes_for::<P>(self.ready_cpus().len())
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        Shootdown::line_name(self, address)
    }
}
