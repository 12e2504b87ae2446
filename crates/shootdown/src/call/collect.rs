//! Calls that return something: a result from each CPU.

use crate::call::CallTargets;
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;

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

impl<P: Platform> Shootdown<P> {
    /// Runs `function` on those of `targets` that are online and puts what it returns there into `results`, CPU `n`'s in element `n`;
    /// elements of others stay as they are. CPUs for which `results` has no element are not called. Returns which CPUs ran
    /// it. Context and panics as [`call_one`](Self::call_one).
    ///
    /// ```
    /// # use shootdown::*;
    /// # fn example<P: Platform>(engine: &Shootdown<P>) {
    /// let mut clocks = [None; 4];
    /// engine.call_collect(&engine.ready_cpus(), &|_| engine.platform().now_ns(), &mut clocks);
    /// let newest = clocks.into_iter().flatten().max();
    /// # }
    /// ```
    pub fn call_collect<'t, F, R>(
        &self,
        targets: impl Into<CallTargets<'t, P::Cpus>>,
        function: &F,
        results: &mut [Option<R>],
    ) -> CpuMask<P::Cpus>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        let mut named = CpuMask::first(results.len().min(P::Cpus::CPUS));
        let targets = targets.into().among(&mut named);
        let results = Results(results.as_mut_ptr());
        self.call_many(targets, &|cpu| {
            let result = function(cpu);
            // SAFETY: 1. only CPUs with an element are called, each runs this once, and our caller lends the array until all have.
            unsafe { results.set(cpu, result) };
        })
    }
}
