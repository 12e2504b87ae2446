//! [`PollIdle`]: idle CPUs that look instead of being interrupted.

use core::marker::PhantomData;

use crate::call::free_slot::forbid_inside_function;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::Platform;

/// An idle CPU that looks for work itself: requests that come through its inbox send it no interrupt. (Broadcasts and posted
/// call data do: their initiators do not look at inboxes.)
///
/// [`Shootdown::poll_idle`] lends it. The host loops until [`has_work`](Self::has_work), with the processor's pause hint or waiting for a write
/// to [`doorbell`](Self::doorbell) (x86: MONITOR and MWAIT).
#[derive(Debug)]
pub struct PollIdle<'a, P: Platform> {
    engine: &'a Shootdown<P>,
    here: Here<'a, P>,
    /// It is this CPU's, and stays here.
    _here: PhantomData<*const ()>,
}

impl<P: Platform> Shootdown<P> {
    /// Runs `idle`, which polls for requests on this CPU, and returns what it returned. Then serves what has come, functions too, in the context
    /// of the caller; from then on interrupts are sent again, so a host halts the CPU, or runs another task, behind it and not inside.
    ///
    /// The caller must not leave this CPU meanwhile. Interrupts in any state (one that the CPU takes meanwhile is served as always).
    ///
    /// ```no_run
    /// # use shootdown::*;
    /// # fn example<P: Platform>(engine: &Shootdown<P>, is_idle: impl Fn() -> bool) {
    /// engine.poll_idle(|polls| {
    ///     while is_idle() && !polls.has_work() {
    ///         engine.platform().relax();
    ///     }
    /// });
    /// # }
    /// ```
    ///
    /// # Panics
    /// When the CPU has no memory; inside a called function; at the end, on another CPU.
    pub fn poll_idle<R>(&self, idle: impl FnOnce(&PollIdle<'_, P>) -> R) -> R {
        let (irq, here) = self.stay();
        forbid_inside_function(here);
        self.forbid_in_walk(here);
        here.inbox.hold(here.cpu);
        let polls = PollIdle {
            engine: self,
            here,
            _here: PhantomData,
        };
        drop(irq);
        // Lent, not given: one that was forgotten would leave this CPU without interrupts (I7).
        idle(&polls)
    }
}

impl<P: Platform> PollIdle<'_, P> {
    /// Whether something has come: stop polling then. Does not block.
    ///
    /// # Panics
    /// On another CPU.
    pub fn has_work(&self) -> bool {
        self.check_cpu();
        let inbox = &self.here.inbox;
        if inbox.is_held(self.here.cpu) {
            return !inbox.is_quiet(self.here.cpu) || self.is_told();
        }
        // An interrupt was served meanwhile, which let the doorbell go.
        let _irq = self.engine.irq_guard();
        inbox.hold(self.here.cpu);
        true
    }

    /// The inbox is its CPU's: no other may serve it.
    fn check_cpu(&self) {
        let here = self.engine.platform.current_cpu();
        assert!(
            here == self.here.cpu,
            "{} idles and goes on as {here}: disable preemption meanwhile",
            self.here.cpu
        );
    }

    /// Whether something has come of which the doorbell says nothing, because its initiator interrupts.
    fn is_told(&self) -> bool {
        let (cpu, state) = (self.here.cpu, self.here.state);
        self.engine.is_broadcast_due(cpu, state, false) || !state.posted.0.is_empty()
    }

    /// The address of the word that initiators write. Broadcasts and posted call data do not write it, they interrupt: a CPU that waits for a write here
    /// has interrupts on, or has a masked interrupt end the wait (x86: MWAIT with bit 0 of ECX).
    pub fn doorbell(&self) -> *const u64 {
        self.here.inbox.doorbell_address()
    }
}

impl<P: Platform> Drop for PollIdle<'_, P> {
    fn drop(&mut self) {
        let _irq = self.engine.irq_guard();
        self.check_cpu();
        self.engine.forbid_in_walk(self.here);
        // Initiators that have come sent no interrupt; that of a broadcast may be on its way still, and `has_work` has told of it.
        let is_quiet = self.here.inbox.let_go(self.here.cpu);
        if !is_quiet || self.is_told() {
            self.engine.serve(self.here);
            self.here.counters.polls_served.add(1);
        }
    }
}
