//! [`Call`]: one call with its own set of targets, as Xen today and the series of April 2026 have it.

use shootdown::shim::Ordering;
use shootdown::{Capacity, CpuId, CpuMask};

use crate::function::{Borrowed, Place, place};
use crate::set::SharedSet;

/// A function and the targets that have not finished it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Call<C: Capacity> {
    function: Place,
    selected: SharedSet<C>,
}

impl<C: Capacity> Call<C> {
    pub(crate) fn new() -> Self {
        Self {
            function: place(),
            selected: SharedSet::new(),
        }
    }

    /// Fills it.
    ///
    /// # Safety
    /// 1. Nobody else fills it meanwhile, and the one before [is done](Self::is_done).
    pub(crate) unsafe fn publish(&self, function: &(dyn Fn(CpuId) + Sync), targets: &CpuMask<C>) {
        // SAFETY: duty 1: the set is empty, so nobody reads.
        unsafe { self.function.write(Borrowed::new(function)) };
        // ORDERING: publishes the function; pairs with `contains` in `serve`.
        self.selected.store(targets, Ordering::Release);
    }

    /// Whether every target has finished.
    pub(crate) fn is_done(&self) -> bool {
        // ORDERING: acquires what the targets did; pairs with `remove` in `serve`.
        self.selected.is_empty(Ordering::Acquire)
    }

    /// Runs the function here if `me` is among those that have still to.
    pub(crate) fn serve(&self, me: CpuId) {
        // ORDERING: acquires the function; pairs with `publish`.
        if !self.selected.contains(me, Ordering::Acquire) {
            return;
        }
        // SAFETY: our bit is set: the function is written, and stays until we clear it.
        let function = unsafe { self.function.read() };
        // SAFETY: 1. the initiator waits for our bit.
        unsafe { function.run(me) };
        // ORDERING: publishes what the function did; pairs with `is_done`.
        self.selected.remove(me, Ordering::AcqRel);
    }
}
