//! [`CallTicket`]: a call that was submitted and not yet waited for.

use crate::call::free_slot::forbid_inside_function;
use crate::call::{RequestRef, WaitsFor};
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;

/// The right, and the duty, to wait for one submitted call. It tracks its own request only: later requests of
/// the same CPU, even in the same slot, do not prolong its wait.
///
/// Dropping it waits. Forgetting it loses the wait and nothing else: the call's data were copied.
#[must_use = "the call may not have come as far as you asked: wait for the ticket"]
#[derive(Debug)]
pub struct CallTicket<'a, P: Platform> {
    pub(super) engine: &'a Shootdown<P>,
    pub(super) targets: CpuMask<P::Cpus>,
    pub(super) request: Option<RequestRef>,
}

impl<P: Platform> CallTicket<'_, P> {
    /// The CPUs that were online and got the call, this one included if it was named.
    pub fn targets(&self) -> CpuMask<P::Cpus> {
        self.targets
    }

    /// Whether waiting would return at once. Any context; does not block.
    pub fn is_done(&self) -> bool {
        self.request
            .is_none_or(|request| self.engine.is_done(request))
    }

    /// Waits; returns the CPUs that got the call. Interrupts and preemption in any state; spins. What the CPU it runs on was called
    /// for runs meanwhile, as in [`call_one`](Shootdown::call_one).
    ///
    /// # Panics
    /// Inside a called function, unless the call is done. So does dropping it.
    pub fn wait(mut self) -> CpuMask<P::Cpus> {
        self.finish();
        self.targets
    }

    fn finish(&mut self) {
        if let Some(request) = self.request.take() {
            if !self.engine.is_done(request) {
                let _irq = self.engine.irq_guard();
                let cpu = self.engine.platform.current_cpu();
                forbid_inside_function(cpu, self.engine.state(cpu));
            }
            self.engine.wait_for(request, WaitsFor::Function);
        }
    }
}

impl<P: Platform> Drop for CallTicket<'_, P> {
    fn drop(&mut self) {
        self.finish();
    }
}
