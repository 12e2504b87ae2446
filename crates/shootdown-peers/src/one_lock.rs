//! [`OneLock`]: `on_selected_cpus` of Xen today.

#[cfg(feature = "sim")]
use shootdown::shim::{first_name, touches};
use shootdown::{CpuId, CpuMask, Platform};

use crate::CrossCall;
use crate::call::Call;
use crate::caller::Caller;
use crate::lock::TicketLock;

/// One call for the whole machine, under one lock, with the set of targets that have not finished. The targets are
/// interrupted by multicast; each clears its bit; the initiator waits under the lock until the set is empty. (Xen,
/// `common/smp.c`.)
///
/// Weakness: one call at a time, whoever its targets are.
#[derive(Debug)]
pub struct OneLock<P: Platform> {
    platform: P,
    lock: TicketLock,
    call: Call<P::Cpus>,
}

impl<P: Platform> OneLock<P> {
    /// Nothing is under way.
    pub fn new(platform: P) -> Self {
        Self {
            platform,
            lock: TicketLock::new(),
            call: Call::new(),
        }
    }
}

impl<P: Platform> CrossCall<P::Cpus> for OneLock<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        self.lock.with(&self.platform, || {
            // SAFETY: 1. under the lock, and whoever had it waited.
            unsafe { self.call.publish(function, &others) };
            caller.interrupt_all(&others);
            caller.run_here(is_named, function);
            caller.wait_until(|| self.call.is_done());
        });
    }

    fn handle_ipi(&self) {
        self.call.serve(self.platform.current_cpu());
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.lock) + size_of_val(&self.call)
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&self.lock, address), "lock"),
            (touches(&self.call, address), "call"),
        ])
    }
}
