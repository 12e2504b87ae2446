//! [`OneLock`]: Xen's `on_selected_cpus` before 2026.

use shootdown::shim::Ordering;
use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform};

use crate::CrossCall;
use crate::caller::Caller;
use crate::function::{Borrowed, Place, place};
use crate::lock::TicketLock;
use crate::set::SharedSet;

/// One call for the whole machine, under one lock, with the set of targets that have not finished. The targets are
/// interrupted by multicast; each clears its bit; the initiator waits under the lock until the set is empty. (Xen,
/// `common/smp.c`.)
///
/// Weakness: one call at a time, whoever its targets are.
#[derive(Debug)]
pub struct OneLock<P: Platform, const N: usize>
where
    Cpus<N>: Capacity,
{
    platform: P,
    lock: TicketLock,
    call: Call<N>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Call<const N: usize>
where
    Cpus<N>: Capacity,
{
    function: Place,
    selected: SharedSet<N>,
}

impl<P: Platform, const N: usize> OneLock<P, N>
where
    Cpus<N>: Capacity,
{
    /// Nothing is under way.
    pub fn new(platform: P) -> Self {
        Self {
            platform,
            lock: TicketLock::new(),
            call: Call {
                function: place(),
                selected: SharedSet::new(),
            },
        }
    }
}

impl<P: Platform, const N: usize> CrossCall<N> for OneLock<P, N>
where
    Cpus<N>: Capacity,
{
    fn call(&self, targets: &CpuMask<N>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        self.lock.with(&self.platform, || {
            // SAFETY: under the lock, and the set is empty: nobody reads.
            unsafe { self.call.function.write(Borrowed::new(function)) };
            // ORDERING: publishes the function; pairs with `contains` in `handle_ipi`.
            self.call.selected.store(&others, Ordering::Release);
            caller.interrupt_all(&others);
            caller.run_here(is_named, function);
            // ORDERING: acquires what the targets did.
            caller.wait_until(|| self.call.selected.is_empty(Ordering::Acquire));
        });
    }

    fn handle_ipi(&self) {
        let me = self.platform.current_cpu();
        // ORDERING: acquires the function.
        if !self.call.selected.contains(me, Ordering::Acquire) {
            return;
        }
        // SAFETY: our bit is set: the function is written, and stays until we clear it.
        let function = unsafe { self.call.function.read() };
        // SAFETY: 1. the initiator waits for our bit.
        unsafe { function.run(me) };
        // ORDERING: publishes what the function did.
        self.call.selected.remove(me, Ordering::AcqRel);
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.lock) + size_of_val(&self.call)
    }
}
