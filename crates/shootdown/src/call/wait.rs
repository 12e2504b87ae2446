//! Waiting for one request.

use crate::call::RequestRef;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::stats::wait_bucket;
use crate::trace::TraceEvent;
use crate::watchdog::Watch;

/// What a task waits for: the end of such a request, or a slot for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitsFor {
    /// The waiter serves flushes only: two that wait with interrupts off depend on nothing else.
    Flush,
    /// The waiter runs functions too: its target may be waiting for it in the same way.
    Function,
}

impl<P: Platform> Shootdown<P> {
    /// Whether the request is complete.
    #[inline]
    pub(crate) fn is_done(&self, request: RequestRef) -> bool {
        self.state(request.initiator).slots[request.slot].is_done(request.number)
    }

    /// Serves what a task that waits for this may serve.
    #[inline]
    pub(super) fn poll_for(&self, what: WaitsFor) -> bool {
        match what {
            WaitsFor::Flush => self.poll_flushes::<false>(),
            WaitsFor::Function => self.poll_all(),
        }
    }

    /// Returns when the request is complete, and not before (I11). Interrupts and preemption in any state;
    /// the waiter may move to another CPU meanwhile. It serves the CPU it is on, so that two
    /// waiters with interrupts off cannot wait for each other for ever.
    pub(crate) fn wait_for(&self, request: RequestRef, what: WaitsFor) {
        let slot = &self.state(request.initiator).slots[request.slot];
        if slot.is_done(request.number) {
            self.platform.on_trace(TraceEvent::FoundDone {
                initiator: request.initiator,
            });
            return;
        }
        self.forbid_wait_in_walk();
        let measures = P::CONFIG.has_counters && self.policy().measures_waits();
        let started_ns = measures.then(|| self.platform.now_ns());
        self.platform.on_trace(TraceEvent::WaitStarted {
            cpu: self.platform.current_cpu(),
        });
        let mut watch = Watch::default();
        loop {
            self.poll_for(what);
            self.platform.relax();
            if slot.is_done(request.number) {
                break;
            }
            self.watch_wait(&mut watch, |waited_ns| self.stall_of(request, waited_ns));
        }
        // The counters are those of the CPU that the waiter is on now, which may be another one at any moment.
        let cpu = self.platform.current_cpu();
        if P::CONFIG.has_counters {
            let counters = &self.state(cpu).counters;
            counters.waits_finished.add_anywhere(1);
            if let Some(started_ns) = started_ns {
                let elapsed_ns = self.platform.now_ns().saturating_sub(started_ns);
                counters.waits_ns[wait_bucket(elapsed_ns)].add_anywhere(1);
            }
        }
        self.platform.on_trace(TraceEvent::WaitFinished { cpu });
    }
}
