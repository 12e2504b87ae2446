//! Kicks: having CPUs pass through the engine, for nothing else, or for a barrier.

use crate::call::{Kind, Payload, Request, RequestRef, WaitsFor};
use crate::engine::Shootdown;
use crate::handle::CpuControl;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::sync::{Ordering, fence};
use crate::tlb::{AddressSpace, Attention, FlushRequest};

/// A [kick](CpuControl::kick) that was sent, or a barrier. Nothing is lost when it is dropped.
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

impl<'a, P: Platform> CpuControl<'a, P> {
    /// Has every online CPU of `targets` but this one pass through the engine once: it takes the interrupt, or looks for flushes
    /// where it waits or polls. A hypervisor's vCPU has left guest mode by then, a halted CPU is awake; a CPU in a stretch with interrupts
    /// off that does not poll has left it. What a target did before is seen after the wait, and it sees then what was written before the kick. One that is
    /// [quiet](Self::enter_quiet) is left where it is, in a guest, too: it has passed, and sees it when it is in the kernel again.
    ///
    /// Interrupts and preemption in any state. Does not wait for the targets; it may wait for a request slot of this CPU, serving
    /// flushes. Unlike a call it may be used, and waited for, inside a called function and under locks whose spin loops
    /// [poll](Shootdown::poll).
    ///
    /// # Panics
    /// When this CPU has no [memory](Shootdown::attach).
    pub fn kick(self, targets: &CpuMask<P::Cpus>) -> KickTicket<'a, P> {
        self.0.send_kick(targets, FlushRequest::NOTHING)
    }

    /// Has every online CPU of `targets` fetch its instructions anew, this one too ([`Platform::synchronise_here`]): each does so between this call and the end of the
    /// wait, in the interrupt or where it polls or waits. For code that was changed: write it and clean the caches before. What a CPU executes before its turn may
    /// be old or new; one that comes online later synchronises when `online` has returned, one that is [quiet](Self::enter_quiet) when it is in the kernel again.
    ///
    /// Context and panics as [`kick`](Self::kick); and where the platform has no `synchronise_here`.
    pub fn serialise(self, targets: &CpuMask<P::Cpus>) -> KickTicket<'a, P> {
        self.0.send_kick(targets, FlushRequest::SERIALISE)
    }

    /// A full barrier on every CPU that runs in `space`, this one too, between this call and the end of the wait (Linux: `membarrier`, private expedited). Of two
    /// threads of the space one may leave its barrier out if the other issues this one. Never by a [back end](Platform::flushes_remotely): what is flushed by one executes
    /// nothing. CPUs that are lazy are left alone, and so are those that have left the space: each issues a barrier before it uses the space again.
    ///
    /// Context as [`kick`](Self::kick).
    ///
    /// # Panics
    /// As there, and when the space is another engine's.
    #[track_caller]
    pub fn barrier(self, space: &AddressSpace<P::Cpus>) -> KickTicket<'a, P> {
        self.0.check_owner(space.id());
        // ORDERING: the caller's accesses / read CPU set and marks, against store CPU bit or mark / accesses in `join` and `leave_lazy`; and the caller's own barrier.
        fence(Ordering::SeqCst);
        let runs = |attention| !matches!(attention, Attention::Lazy | Attention::Detached);
        let running = self.0.holders_that(space, runs);
        self.0.send_kick(&running, FlushRequest::BARRIER)
    }
}

impl<P: Platform> Shootdown<P> {
    /// A kick by this request, which no target does anything for but to answer it.
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

    /// Waits until every other CPU that is online has been through the engine: what it was doing there is over.
    pub(crate) fn settle(&self) {
        if let Some(kick) = self.publish_kick(None, FlushRequest::NOTHING) {
            self.wait_for(kick, WaitsFor::Flush);
        }
    }

    /// Fetches instructions anew behind a full barrier. Interrupts are off.
    #[cold]
    #[inline(never)]
    pub(crate) fn synchronise(&self) {
        fence(Ordering::SeqCst);
        self.platform.synchronise_here();
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
        // Here, too, now that this is the CPU that is left out.
        match request {
            FlushRequest::BARRIER => fence(Ordering::SeqCst),
            FlushRequest::SERIALISE => self.synchronise(),
            _ => {}
        }
        let kicked = self.to_be_kicked(targets, request);
        let targets = kicked.as_ref().or(targets);
        let request = Request::data(Payload::of(request));
        let mut named = CpuMask::EMPTY;
        let sent = self.dispatch(&slot, targets, Kind::FLUSH, request, &mut named);
        sent.published
    }
}
