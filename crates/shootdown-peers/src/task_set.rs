//! [`TaskSet`]: Xen's lockless calls of 2026 (T5).

use alloc::boxed::Box;

use shootdown::shim::Ordering;
use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform};

use crate::CrossCall;
use crate::caller::Caller;
use crate::function::{Borrowed, Place, place};
use crate::set::SharedSet;

/// Each CPU has a call of its own; one global set names the CPUs whose calls are under way. A target walks that set in
/// ascending order and runs what names it.
///
/// Weakness: whoever has a low number is served first, by every target, in each interrupt; one line is written by every
/// initiator at the beginning and at the end of each call, and read by every target.
#[derive(Debug)]
pub struct TaskSet<P: Platform, const N: usize>
where
    Cpus<N>: Capacity,
{
    platform: P,
    calls: Box<[Call<N>]>,
    tasks: Aligned<SharedSet<N>>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Aligned<T>(T);

#[derive(Debug)]
#[repr(align(64))]
struct Call<const N: usize>
where
    Cpus<N>: Capacity,
{
    function: Place,
    selected: SharedSet<N>,
}

impl<P: Platform, const N: usize> TaskSet<P, N>
where
    Cpus<N>: Capacity,
{
    /// For CPUs below `cpus`.
    pub fn new(platform: P, cpus: usize) -> Self {
        Self {
            platform,
            calls: (0..cpus)
                .map(|_| Call {
                    function: place(),
                    selected: SharedSet::new(),
                })
                .collect(),
            tasks: Aligned(SharedSet::new()),
        }
    }
}

impl<P: Platform, const N: usize> CrossCall<N> for TaskSet<P, N>
where
    Cpus<N>: Capacity,
{
    fn call(&self, targets: &CpuMask<N>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        let call = &self.calls[caller.me.index()];
        // SAFETY: only this CPU writes here, not preempted, and the targets of its last call have finished.
        unsafe { call.function.write(Borrowed::new(function)) };
        // ORDERING: publishes the function; pairs with `contains` in `handle_ipi`.
        call.selected.store(&others, Ordering::Release);
        // ORDERING: publishes the call to those that walk the set.
        self.tasks.0.insert(caller.me, Ordering::AcqRel);
        caller.interrupt_all(&others);
        caller.run_here(is_named, function);
        // ORDERING: acquires what the targets did.
        caller.wait_until(|| call.selected.is_empty(Ordering::Acquire));
        self.tasks.0.remove(caller.me, Ordering::Relaxed);
    }

    fn handle_ipi(&self) {
        let me = self.platform.current_cpu();
        // ORDERING: acquires the calls of those that are in it.
        for initiator in self.tasks.0.iter(Ordering::Acquire) {
            let call = &self.calls[initiator.index()];
            // ORDERING: acquires the function.
            if !call.selected.contains(me, Ordering::Acquire) {
                continue;
            }
            // SAFETY: our bit is set: the function is written, and stays until we clear it.
            let function = unsafe { call.function.read() };
            // SAFETY: 1. the initiator waits for our bit.
            unsafe { function.run(me) };
            // ORDERING: publishes what the function did.
            call.selected.remove(me, Ordering::AcqRel);
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.calls) + size_of_val(&self.tasks)
    }
}
