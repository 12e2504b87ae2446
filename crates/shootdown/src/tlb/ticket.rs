//! [`FlushTicket`] and [`BatchTicket`]: flushes that were submitted and not yet waited for.

use crate::call::RequestRef;
use crate::capacity::{Capacity, Cpus};
use crate::engine::{PreemptGuard, Shootdown};
use crate::platform::Platform;
use crate::tlb::{FlushBatch, FlushRequest, Reclaimed};

/// The right, and the duty, to wait for one flush: until then other CPUs may use the old translations.
///
/// It tracks its own request only, and may be waited for on another CPU (except under a policy that does not
/// [wait preemptibly](crate::Policy::waits_preemptibly), which keeps preemption disabled until after the wait). Dropping
/// it waits.
#[must_use = "other CPUs may still use the old translations: wait for the ticket"]
#[derive(Debug)]
pub struct FlushTicket<'a, P: Platform, const N: usize>
where
    Cpus<N>: Capacity,
{
    engine: &'a Shootdown<P, N>,
    request: Option<RequestRef>,
    /// What is still to be flushed here, after the wait. Only with preemption disabled: it is this CPU's.
    local_due: Option<FlushRequest>,
    /// Dropped after all else.
    _preempt: Option<PreemptGuard<'a, P>>,
}

impl<'a, P: Platform, const N: usize> FlushTicket<'a, P, N>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn done(engine: &'a Shootdown<P, N>) -> Self {
        Self {
            engine,
            request: None,
            local_due: None,
            _preempt: None,
        }
    }

    pub(crate) fn published(
        engine: &'a Shootdown<P, N>,
        request: RequestRef,
        preempt: Option<PreemptGuard<'a, P>>,
    ) -> Self {
        Self {
            engine,
            request: Some(request),
            local_due: None,
            _preempt: preempt,
        }
    }

    /// The flush of this CPU is still to be done, after the wait. Preemption is disabled until then.
    pub(crate) fn with_local_due(mut self, local: FlushRequest) -> Self {
        self.local_due = Some(local);
        self
    }

    /// Whether waiting would return at once. Any context; does not block.
    pub fn is_done(&self) -> bool {
        self.local_due.is_none()
            && self
                .request
                .is_none_or(|request| self.engine.is_done(request))
    }

    /// Waits until no CPU uses the old translations from user mode, nor from the kernel through
    /// uses that begin after this returns. Interrupts and preemption in any state; spins, serving
    /// the inbox of the CPU it runs on.
    pub fn wait(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if let Some(request) = self.request.take() {
            self.engine.wait_for(request);
        }
        if let Some(request) = self.local_due.take() {
            self.engine.flush_owed(&request);
        }
    }
}

impl<P: Platform, const N: usize> Drop for FlushTicket<'_, P, N>
where
    Cpus<N>: Capacity,
{
    fn drop(&mut self) {
        self.finish();
    }
}

/// A [`FlushTicket`] that holds the frames of its batch until the flush is complete.
///
/// Dropping it waits and leaks the frames; forgetting it leaks them too. Neither lets anyone reuse a frame
/// early.
#[must_use = "the frames of the batch come back only from `wait`"]
#[derive(Debug)]
pub struct BatchTicket<'a, P: Platform, const N: usize, T, const CAP: usize>
where
    Cpus<N>: Capacity,
{
    flush: FlushTicket<'a, P, N>,
    batch: FlushBatch<T, CAP>,
}

impl<'a, P: Platform, const N: usize, T, const CAP: usize> BatchTicket<'a, P, N, T, CAP>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn new(flush: FlushTicket<'a, P, N>, batch: FlushBatch<T, CAP>) -> Self {
        Self { flush, batch }
    }

    /// Whether waiting would return at once. Any context; does not block.
    pub fn is_done(&self) -> bool {
        self.flush.is_done()
    }

    /// Waits as [`FlushTicket::wait`] does, then gives the frames and tables back for reuse.
    pub fn wait(self) -> Reclaimed<T, CAP> {
        self.flush.wait();
        self.batch.reclaim()
    }
}
