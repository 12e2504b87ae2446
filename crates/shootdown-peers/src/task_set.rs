//! [`TaskSet`]: the lockless calls of the series for Xen of April 2026 (T5).

use alloc::boxed::Box;

use shootdown::shim::Ordering;
#[cfg(feature = "sim")]
use shootdown::shim::{first_name, touches};
use shootdown::{CpuId, CpuMask, Platform};

use crate::CrossCall;
use crate::call::Call;
use crate::caller::Caller;
use crate::set::SharedSet;

/// Each CPU has a call of its own; one global set names the CPUs whose calls are under way. A target walks that set in
/// ascending order and runs what names it.
///
/// Weakness: whoever has a low number is served first, by every target, in each interrupt; one line is written by every
/// initiator at the beginning and at the end of each call, and read by every target.
#[derive(Debug)]
pub struct TaskSet<P: Platform> {
    platform: P,
    calls: Box<[Call<P::Cpus>]>,
    tasks: Aligned<SharedSet<P::Cpus>>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Aligned<T>(T);

impl<P: Platform> TaskSet<P> {
    /// For CPUs below `cpus`.
    pub fn new(platform: P, cpus: usize) -> Self {
        Self {
            platform,
            calls: (0..cpus).map(|_| Call::new()).collect(),
            tasks: Aligned(SharedSet::new()),
        }
    }
}

impl<P: Platform> CrossCall<P::Cpus> for TaskSet<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        let call = &self.calls[caller.me.index()];
        // SAFETY: 1. only this CPU fills it, not preempted, and it has waited for its last call.
        unsafe { call.publish(function, &others) };
        // ORDERING: publishes the call to those that walk the set.
        self.tasks.0.insert(caller.me, Ordering::AcqRel);
        caller.interrupt_all(&others);
        caller.run_here(is_named, function);
        caller.wait_until(|| call.is_done());
        self.tasks.0.remove(caller.me, Ordering::Relaxed);
    }

    fn handle_ipi(&self) {
        let me = self.platform.current_cpu();
        // ORDERING: acquires the calls of those that are in it.
        for initiator in self.tasks.0.iter(Ordering::Acquire) {
            self.calls[initiator.index()].serve(me);
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.calls) + size_of_val(&self.tasks)
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&*self.calls, address), "calls"),
            (touches(&self.tasks, address), "set of callers"),
        ])
    }
}
