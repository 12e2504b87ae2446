//! [`FlushTicket`]: a flush that was submitted and not yet waited for.

use core::mem::ManuallyDrop;

use crate::call::{RequestRef, WaitsFor};
use crate::engine::Shootdown;
use crate::guard::PreemptGuard;
use crate::platform::Platform;
use crate::tlb::FlushRequest;
use crate::tlb::respond::Role;

/// The right, and the duty, to wait for one flush: until then other CPUs may use the old translations.
///
/// It may hold what must not be reused before, such as frames: [`hold`](Self::hold), and
/// [`submit_batch`](Shootdown::submit_batch). That comes back only from [`wait`](Self::wait).
///
/// It tracks its own request only. The task that submitted the flush waits for it: a ticket cannot be sent to another one,
/// because under a policy that does not [wait preemptibly](crate::Policy::waits_preemptibly) or flushes here last a part of
/// the flush is due on the CPU that submitted it. Such a policy keeps preemption disabled until the ticket is gone, so a ticket that is
/// forgotten leaves it disabled; under others a forgotten ticket costs nothing but itself. Dropping it waits.
///
/// ```compile_fail
/// # use shootdown::*;
/// fn is_send<T: Send>(_: T) {}
/// fn example<P: Platform>(engine: &Shootdown<P>, space: &AddressSpace<P::Cpus>) {
///     is_send(engine.submit_flush(space, FlushRange::WHOLE, FreedTables::No));
/// }
/// ```
#[must_use = "other CPUs may still use the old translations: wait for the ticket"]
#[derive(Debug)]
pub struct FlushTicket<'a, P: Platform, H = ()> {
    /// What is left of the flush, and what the ticket holds; none once it has been waited for, or handed on.
    pending: Option<(PendingFlush<'a, P>, H)>,
}

#[derive(Debug)]
struct PendingFlush<'a, P: Platform> {
    engine: &'a Shootdown<P>,
    request: Option<RequestRef>,
    /// What is still to be flushed here, after the wait. Only with preemption disabled: it is this CPU's.
    local_due: Option<FlushRequest>,
    /// Dropped after the wait.
    _preempt: Option<PreemptGuard<'a, P>>,
}

impl<'a, P: Platform> FlushTicket<'a, P> {
    pub(super) fn done(engine: &'a Shootdown<P>) -> Self {
        Self::new(engine, None, None, None)
    }

    /// A ticket for `request`, after which `local_due` is flushed here; preemption is disabled until then.
    pub(super) fn new(
        engine: &'a Shootdown<P>,
        request: Option<RequestRef>,
        local_due: Option<FlushRequest>,
        preempt: Option<PreemptGuard<'a, P>>,
    ) -> Self {
        let flush = PendingFlush {
            engine,
            request,
            local_due,
            _preempt: preempt,
        };
        FlushTicket {
            pending: Some((flush, ())),
        }
    }

    /// Has the ticket hold `value`, whatever the host collects freed frames in, until the flush is complete.
    pub fn hold<H>(mut self, value: H) -> FlushTicket<'a, P, H> {
        let pending = self.pending.take();
        FlushTicket {
            pending: pending.map(|(flush, ())| (flush, value)),
        }
    }
}

impl<P: Platform, H> FlushTicket<'_, P, H> {
    /// Whether waiting would return at once. Any context; does not block.
    pub fn is_done(&self) -> bool {
        self.pending.as_ref().is_none_or(|(flush, _)| {
            let is_answered = |request| flush.engine.is_done(request);
            flush.local_due.is_none() && flush.request.is_none_or(is_answered)
        })
    }

    /// Waits until no CPU uses the old translations from user mode, nor from the kernel through
    /// uses that begin after this returns; then gives back what it holds. Interrupts and preemption in any state; spins, serving
    /// the flushes of the CPU it runs on.
    ///
    /// If the wait unwinds, because a method of the platform panics or the engine finds a mistake of the host's, what it holds is leaked.
    pub fn wait(mut self) -> H {
        self.finish().expect("taken here only, and by the drop")
    }

    fn finish(&mut self) -> Option<H> {
        let (flush, held) = self.pending.take()?;
        // A wait that unwinds leaks it (I5).
        let held = ManuallyDrop::new(held);
        if let Some(request) = flush.request {
            flush.engine.wait_for(request, WaitsFor::Flush);
        }
        if let Some(request) = &flush.local_due {
            let (_irq, here) = flush.engine.stay();
            flush.engine.flush_here(here, request, Role::Initiator);
        }
        drop(flush);
        Some(ManuallyDrop::into_inner(held))
    }
}

impl<P: Platform, H> Drop for FlushTicket<'_, P, H> {
    fn drop(&mut self) {
        self.finish();
    }
}
