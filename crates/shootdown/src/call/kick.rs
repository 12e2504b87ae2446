//! Kicks: having CPUs pass through the engine, for nothing else.

use crate::call::{Kind, Payload, Request, RequestRef, WaitsFor};
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::tlb::FlushRequest;

/// A [kick](Shootdown::kick) that was sent. Nothing is lost when it is dropped.
#[derive(Debug)]
pub struct KickTicket<'a, P: Platform> {
    engine: &'a Shootdown<P>,
    request: Option<RequestRef>,
}

impl<P: Platform> KickTicket<'_, P> {
    /// Whether all targets have answered. Any context; does not block.
    pub fn is_done(&self) -> bool {
        self.request
            .is_none_or(|request| self.engine.is_done(request))
    }

    /// Waits until all targets have answered. Interrupts and preemption in any state; spins, serving the flushes of the CPU it runs
    /// on.
    pub fn wait(self) {
        if let Some(request) = self.request {
            self.engine.wait_for(request, WaitsFor::Flush);
        }
    }
}

impl<P: Platform> Shootdown<P> {
    /// Has every online CPU of `targets` but this one pass through the engine once: it takes the interrupt, or looks for flushes
    /// where it waits or polls. A hypervisor's vCPU has left guest mode by then, a halted CPU is awake; a CPU in a stretch with interrupts
    /// off that does not poll has left it.
    ///
    /// Interrupts and preemption in any state. Does not wait for the targets; it may wait for a request slot of this CPU, serving
    /// flushes. Unlike a call it may be used, and waited for, inside a called function and under locks whose spin loops
    /// [poll](Self::poll).
    ///
    /// # Panics
    /// When this CPU has no [memory](Self::attach).
    pub fn kick(&self, targets: &CpuMask<P::Cpus>) -> KickTicket<'_, P> {
        self.send_kick(targets, FlushRequest::NOTHING)
    }

    /// The same by this request, which no target does anything for but to answer it.
    pub(crate) fn send_kick(
        &self,
        targets: &CpuMask<P::Cpus>,
        request: FlushRequest,
    ) -> KickTicket<'_, P> {
        KickTicket {
            engine: self,
            request: self.publish_kick(Some(targets), request),
        }
    }

    /// A kick of `targets`, or of all online CPUs; `None` if there is none but this one.
    pub(crate) fn publish_kick(
        &self,
        targets: Option<&CpuMask<P::Cpus>>,
        request: FlushRequest,
    ) -> Option<RequestRef> {
        let slot = match self.try_free_slot(WaitsFor::Flush) {
            Some(slot) => slot,
            None => self.wait_for_slot(WaitsFor::Flush),
        };
        let request = Request::data(Payload::of(request));
        let mut named = CpuMask::EMPTY;
        let sent = self.dispatch(&slot, targets, Kind::FLUSH, request, &mut named);
        sent.published
    }
}
