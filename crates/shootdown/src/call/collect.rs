//! Calls that return something: a result from each CPU, or from any one.

use crate::call::function::Dispatched;
use crate::call::{FreeSlot, Kind, Targets};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::sync::Ordering;

/// The results of a call, of which each CPU writes its own.
struct Results<R>(*mut Option<R>);

// SAFETY: each CPU writes one element, and the caller reads them when all have.
unsafe impl<R: Send> Sync for Results<R> {}

impl<R> Results<R> {
    /// # Safety
    /// 1. The array has an element for `cpu`, and only `cpu` calls this for it, while the array is lent to us.
    unsafe fn set(&self, cpu: CpuId, result: R) {
        // SAFETY: duty 1.
        let place = unsafe { self.0.add(cpu.index()) };
        // SAFETY: duty 1.
        unsafe { *place = Some(result) };
    }
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Runs `function` on every online CPU of `targets` and puts what it returns there into `results`, CPU `n`'s in element `n`;
    /// elements of others stay as they are. CPUs for which `results` has no element are not called. Returns which CPUs ran
    /// it. Context and panics as [`call_one`](Self::call_one).
    ///
    /// ```
    /// # use shootdown::*;
    /// # fn example<P: Platform>(engine: &Shootdown<P, 4>) {
    /// let mut clocks = [None; 4];
    /// engine.call_collect(&engine.ready_cpus(), &|_| engine.platform().now_ns(), &mut clocks);
    /// let newest = clocks.into_iter().flatten().max();
    /// # }
    /// ```
    pub fn call_collect<F, R>(
        &self,
        targets: &CpuMask<N>,
        function: &F,
        results: &mut [Option<R>],
    ) -> CpuMask<N>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        let mut named = CpuMask::first(results.len().min(N));
        named.intersect(targets);
        let results = Results(results.as_mut_ptr());
        self.call_many(&named, &|cpu| {
            let result = function(cpu);
            // SAFETY: 1. only CPUs with an element are called, each runs this once, and our caller lends the array until all have.
            unsafe { results.set(cpu, result) };
        })
    }

    /// Runs `function` on one online CPU of `targets`: this one if it is among them, else the next one by number. Returns which;
    /// none if none of them is online. Context and panics as [`call_one`](Self::call_one).
    pub fn call_any<F>(&self, targets: &CpuMask<N>, function: &F) -> Option<CpuId>
    where
        F: Fn(CpuId) + Sync,
    {
        let mut chosen = None;
        let dispatch = |slot: &FreeSlot<'_, P, N>, request| {
            chosen = self.nearest(targets, slot.here.cpu);
            let remote = chosen.filter(|cpu| *cpu != slot.here.cpu);
            Dispatched {
                local: chosen == Some(slot.here.cpu),
                published: remote
                    .map(|cpu| self.publish(slot, Kind::CALL, request, Targets::One(cpu))),
            }
        };
        self.call(function, || (), dispatch);
        chosen
    }

    /// The first online CPU of `targets` from `me` on, going round.
    fn nearest(&self, targets: &CpuMask<N>, me: CpuId) -> Option<CpuId> {
        // ORDERING: as in `ready_cpus`.
        let mut live = self.callable_set().load(Ordering::Acquire);
        live.intersect(targets);
        let (mut later, group) = (live, <Cpus<N> as Capacity>::group(me));
        later.words_mut()[..group].fill(0);
        later.words_mut()[group] &= !(<Cpus<N> as Capacity>::bit(me) - 1);
        later.iter().chain(live.iter()).next()
    }
}
