//! [`FlushTicket`]: a flush that was submitted and not yet waited for.

use core::mem::ManuallyDrop;

use crate::call::{RequestRef, WaitsFor};
use crate::dead::Losses;
use crate::engine::Shootdown;
use crate::guard::PreemptGuard;
use crate::platform::Platform;
use crate::tlb::respond::Role;
use crate::tlb::secondary::Notice;
use crate::tlb::{FlushRequest, Held};

/// The right, and the duty, to wait for one flush: until then other CPUs may use the old translations.
///
/// It may hold what must not be reused before, such as frames: [`hold`](Self::hold), and
/// [`submit_batch`](Shootdown::submit_batch). That comes back only from [`wait`](Self::wait).
///
/// It tracks its own request only. The task that submitted the flush waits for it: a ticket cannot be sent to another one,
/// because under a policy that does not [wait preemptibly](crate::Policy::waits_preemptibly) or flushes here last a part of
/// the flush is due on the CPU that submitted it. Such a policy keeps preemption disabled until the ticket is gone, so a ticket that is
/// forgotten leaves it disabled; under others a forgotten ticket costs nothing but itself. Dropping it waits.
/// [`hand_over`](Self::hand_over) makes one of it that can be sent.
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
    // Dropped first: what the ticket holds is freed when this CPU has flushed, too.
    due_here: Option<DueHere<'a, P>>,
    pending: PendingFlush<'a, P, H>,
}

/// What is due after the wait on the CPU that submitted the flush; dropping it does it. Preemption is disabled until then: it is this CPU's.
#[derive(Debug)]
pub(super) struct DueHere<'a, P: Platform> {
    pub(super) engine: &'a Shootdown<P>,
    pub(super) flush: Option<FlushRequest>,
    /// Dropped last.
    pub(super) _preempt: PreemptGuard<'a, P>,
}

/// A flush of which nothing is left to be done on the CPU that submitted it: any task may wait for it, on any CPU, such as one that frees memory. The CPU that
/// submitted it, and that of the waiter, may go offline meanwhile. Dropping it waits. One that is forgotten costs nothing but itself and what it holds.
#[must_use = "other CPUs may still use the old translations: wait for it"]
#[derive(Debug)]
pub struct PendingFlush<'a, P: Platform, H = ()> {
    engine: &'a Shootdown<P>,
    /// None once it has been waited for, or has another one in its place.
    left: Option<Left<H>>,
}

#[derive(Debug)]
struct Left<H> {
    /// If CPUs may die, with [what is known of those that are lost](Losses::beside).
    request: Option<RequestRef>,
    notice: Notice,
    held: H,
}

impl<'a, P: Platform> FlushTicket<'a, P> {
    #[inline]
    pub(super) fn done(engine: &'a Shootdown<P>) -> Self {
        Self::new(engine, None, None)
    }

    #[inline]
    pub(super) fn new(
        engine: &'a Shootdown<P>,
        request: Option<RequestRef>,
        due_here: Option<DueHere<'a, P>>,
    ) -> Self {
        let left = Left {
            request,
            notice: Notice::nothing::<P>(),
            held: (),
        };
        FlushTicket {
            pending: PendingFlush {
                engine,
                left: Some(left),
            },
            due_here,
        }
    }

    /// The ticket waits for a listener, too, and gives nothing back that a lost CPU may use.
    #[inline]
    pub(super) fn with_notice(mut self, notice: Notice, losses: Losses) -> Self {
        if let Some(left) = self.pending.left.as_mut() {
            if P::CONFIG.has_secondary {
                left.notice = notice;
            }
            if P::CONFIG.has_deaths {
                // A CPU without memory flushes only while nobody is online, and can be lost.
                let me = self.pending.engine.platform.current_cpu();
                let with_losses = || losses.beside(left.request, me);
                left.request = (self.pending.engine.attached(me)).map(|_| with_losses());
            }
        }
        self
    }

    /// Has the ticket hold `value`, whatever the host collects freed frames in, until the flush is complete.
    pub fn hold<H>(mut self, value: H) -> FlushTicket<'a, P, H> {
        let left = self.pending.left.take().map(|left| Left {
            request: left.request,
            notice: left.notice,
            held: value,
        });
        FlushTicket {
            pending: PendingFlush {
                engine: self.pending.engine,
                left,
            },
            due_here: self.due_here,
        }
    }
}

impl<'a, P: Platform, H> FlushTicket<'a, P, H> {
    /// Whether waiting would return at once; false as long as a [listener](crate::secondary) has to be asked, which only the wait does. Any context; does not block.
    pub fn is_done(&self) -> bool {
        let is_due = |due: &DueHere<'_, P>| due.flush.is_some();
        !self.due_here.as_ref().is_some_and(is_due) && self.pending.is_done()
    }

    /// Waits until no CPU uses the old translations from user mode, nor from the kernel through
    /// uses that begin after this returns; then gives back what it holds. Interrupts and preemption in any state; spins, serving
    /// the flushes of the CPU it runs on.
    ///
    /// If the wait unwinds, because a method of the platform panics or the engine finds a mistake of the host's, what it holds is leaked.
    ///
    /// # Panics
    /// When a [listener](crate::secondary) fails, or a CPU is [lost](crate::control::CpuControl::declare_lost): [`try_wait`](Self::try_wait) returns then.
    pub fn wait(self) -> H {
        self.try_wait().unwrap_or_else(|held| no_answer(held))
    }

    /// The same, on a platform where [listeners](crate::secondary) may fail or CPUs may be [lost](crate::control::CpuControl::declare_lost).
    ///
    /// # Errors
    /// What it holds, when one did or is: that may still be used.
    pub fn try_wait(self) -> Result<H, Held<'a, P, H>> {
        let Self { due_here, pending } = self;
        let waited = pending.try_wait().map(ManuallyDrop::new);
        // Before what it holds is anybody's (I4, I5); one that unwinds leaks it.
        drop(due_here);
        waited.map(ManuallyDrop::into_inner)
    }

    /// Does what is due here, and returns what any task may wait for. Interrupts and preemption in any state; does not wait for other CPUs.
    pub fn hand_over(self) -> PendingFlush<'a, P, H> {
        self.pending
    }
}

impl<P: Platform> Drop for DueHere<'_, P> {
    fn drop(&mut self) {
        if let Some(request) = &self.flush {
            let (_irq, here) = self.engine.stay();
            self.engine.flush_here(here, request, Role::Initiator);
        }
    }
}

impl<'a, P: Platform, H> PendingFlush<'a, P, H> {
    /// As [`FlushTicket::is_done`].
    pub fn is_done(&self) -> bool {
        self.left.as_ref().is_none_or(|left| {
            let is_answered = |request| self.engine.is_done(Losses::split::<P>(request).0);
            left.notice.token::<P>().is_none() && left.request.is_none_or(is_answered)
        })
    }

    /// As [`FlushTicket::wait`].
    ///
    /// # Panics
    /// As there.
    pub fn wait(self) -> H {
        self.try_wait().unwrap_or_else(|held| no_answer(held))
    }

    /// As [`FlushTicket::try_wait`].
    ///
    /// # Errors
    /// As there.
    pub fn try_wait(mut self) -> Result<H, Held<'a, P, H>> {
        self.finish().expect("taken here only, and by the drop")
    }

    #[inline]
    fn finish(&mut self) -> Option<Result<H, Held<'a, P, H>>> {
        let left = self.left.take()?;
        // A wait that unwinds leaks it (I5).
        let held = ManuallyDrop::new(left.held);
        let mut is_lost = false;
        if let Some(request) = left.request {
            let (request, losses) = Losses::split::<P>(request);
            self.engine.wait_for(request, WaitsFor::Flush);
            is_lost = self.engine.was_lost(losses);
        }
        Some(match self.engine.finish_notice(left.notice) {
            Ok(()) if !is_lost => Ok(ManuallyDrop::into_inner(held)),
            told => {
                let token = told.err().and(left.notice.token::<P>());
                Err(Held::new(self.engine, token, held))
            }
        })
    }
}

#[cold]
#[inline(never)]
fn no_answer<P: Platform, H>(held: Held<'_, P, H>) -> H {
    drop(held);
    panic!(
        "a secondary TLB did not answer, or a CPU is lost: what the flush was about is leaked (try_wait returns it)"
    )
}

impl<P: Platform, H> Drop for PendingFlush<'_, P, H> {
    fn drop(&mut self) {
        _ = self.finish();
    }
}
