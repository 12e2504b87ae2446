//! [`PollIdle`]: idle CPUs that look instead of being interrupted.

use core::marker::PhantomData;

use crate::call::Next;
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;

/// An idle CPU that looks for work itself: requests that come through its inbox send it no interrupt. (Broadcasts do: their
/// initiators do not look at inboxes.)
///
/// While it lives, the host loops until [`has_work`](Self::has_work), with the processor's pause hint or waiting for a write
/// to [`doorbell`](Self::doorbell) (x86: MONITOR and MWAIT). Dropping it serves what has come; from then on interrupts are
/// sent again, so a host drops it before it halts the CPU.
#[must_use = "dropped at once, it only serves the inbox"]
#[derive(Debug)]
pub struct PollIdle<'a, P: Platform, const N: usize>
where
    Cpus<N>: Capacity,
{
    engine: &'a Shootdown<P, N>,
    me: CpuId,
    /// It is this CPU's, and stays here.
    _here: PhantomData<*const ()>,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Begins to poll for requests on this CPU, which is idle. The caller must not leave this CPU until it has dropped the result;
    /// interrupts in any state (one that the CPU takes meanwhile is served as always).
    pub fn poll_idle(&self) -> PollIdle<'_, P, N> {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        self.state(me).inbox.attend(me);
        drop(irq);
        PollIdle {
            engine: self,
            me,
            _here: PhantomData,
        }
    }
}

impl<P: Platform, const N: usize> PollIdle<'_, P, N>
where
    Cpus<N>: Capacity,
{
    /// Whether something has come: drop this then. Does not block.
    pub fn has_work(&self) -> bool {
        let inbox = &self.engine.state(self.me).inbox;
        if inbox.attends(self.me) {
            return !inbox.is_quiet(self.me) || self.engine.is_broadcast_due(self.me);
        }
        // An interrupt was served meanwhile, which ended the promise.
        let irq = self.engine.irq_guard();
        inbox.attend(self.me);
        drop(irq);
        true
    }

    /// The address of the word that initiators write.
    pub fn doorbell(&self) -> *const u64 {
        self.engine.state(self.me).inbox.doorbell_address()
    }
}

impl<P: Platform, const N: usize> Drop for PollIdle<'_, P, N>
where
    Cpus<N>: Capacity,
{
    fn drop(&mut self) {
        let irq = self.engine.irq_guard();
        let state = self.engine.state(self.me);
        // Whoever has come sent no interrupt; that of a broadcast may be on its way still, and `has_work` has told of it.
        let is_quiet = state.inbox.rest(self.me);
        if !is_quiet || self.engine.is_broadcast_due(self.me) {
            self.engine.serve(self.me, Next::Leave);
            state.counters.polls_served.add(1);
        }
        drop(irq);
    }
}
